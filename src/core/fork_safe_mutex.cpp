// The list of all such mutexes, and the handlers that fork() calls.
#include "core/fork_safe_mutex.h"

#include <pthread.h>

namespace fovea::core {
namespace {

std::mutex list_mutex;  // guards the list; also held during fork()
ForkSafeMutex* first_mutex = nullptr;

}  // namespace

struct ForkHandlers {
  static void take() {
    list_mutex.lock();
    for (auto* one = first_mutex; one != nullptr; one = one->next_) one->lock();
  }
  static void give_back() {
    for (auto* one = first_mutex; one != nullptr; one = one->next_) one->unlock();
    list_mutex.unlock();
  }
  static void add(ForkSafeMutex& mutex) {
    static const int registered = pthread_atfork(take, give_back, give_back);
    (void)registered;
    const std::lock_guard lock(list_mutex);
    mutex.next_ = first_mutex;
    first_mutex = &mutex;
  }
};

ForkSafeMutex::ForkSafeMutex() { ForkHandlers::add(*this); }

}  // namespace fovea::core

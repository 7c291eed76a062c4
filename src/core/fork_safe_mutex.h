// A mutex that fork() locks before and unlocks after, so that a child never inherits it locked by a thread that the
// child does not have.
#pragma once

#include <mutex>

namespace fovea::core {

// Never destroyed (never_destroyed.h). A thread that held two of them at once could deadlock with fork().
class ForkSafeMutex {
 public:
  ForkSafeMutex();
  ForkSafeMutex(const ForkSafeMutex&) = delete;
  ForkSafeMutex& operator=(const ForkSafeMutex&) = delete;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  friend struct ForkHandlers;
  std::mutex mutex_;
  ForkSafeMutex* next_ = nullptr;
};

}  // namespace fovea::core

// A mutex that fork() takes and gives back, so that a child never finds it locked by a thread that it lacks.
#pragma once

#include <mutex>

namespace fovea::core {

// Lives for ever (never_destroyed.h). No thread may hold two of them at once, or fork() could wait for ever.
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

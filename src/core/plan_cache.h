// The one cache of plans: what was found for a request, shared by every call that repeats it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "core/fork_safe_mutex.h"
#include "core/never_destroyed.h"

namespace fovea::core {

// Keeps the last kShared values of the process, and of each thread its last kOfThread. A hit among the thread's own
// takes no lock. Whoever holds a value keeps it alive: eviction ends no running call. `Value::answers(request)` tells
// whether a value is the one that is asked for.
template <class Value>
class PlanCache {
 public:
  using Held = std::shared_ptr<const Value>;
  static constexpr std::size_t kShared = 128, kOfThread = 16;

  // One for each type of value.
  static PlanCache& instance() {
    static auto& cache = never_destroyed<PlanCache>();
    return cache;
  }

  // The value that answers the request; if there is none, the one that `make()` returns. Nothing is locked while it is
  // made, so two threads that ask for the same at once may both make it.
  template <class Request, class Make>
  Held find(const Request& request, Make make) {
    OfThread* const own = of_this_thread();
    if (own != nullptr) {
      if (const Held* const hit = own->find(request); hit != nullptr) return *hit;
    }
    Held value = find_shared(request);
    if (value == nullptr) {
      value = make();
      made_.fetch_add(1, std::memory_order_relaxed);
      share(value);
    }
    return own == nullptr ? value : own->add(value);
  }

  // How many values were made so far.
  std::int64_t made() const { return made_.load(std::memory_order_relaxed); }

 private:
  template <std::size_t kPlaces>
  struct Ring {
    std::array<Held, kPlaces> places;
    std::size_t last = 0;

    // The latest first.
    template <class Request>
    const Held* find(const Request& request) const {
      for (std::size_t n = 0; n < kPlaces; ++n) {
        const Held& one = places[(last + kPlaces - n) % kPlaces];
        if (one != nullptr && one->answers(request)) return &one;
      }
      return nullptr;
    }
    void add(Held value) {
      last = (last + 1) % kPlaces;
      places[last].swap(value);
    }
  };

  // A thread counts the holders of a value for itself: threads that run the same plan share no cache line that is
  // written.
  struct OfThread : Ring<kOfThread> {
    Held add(const Held& value) {
      const auto shared = std::make_shared<Held>(value);
      const Held counted(shared, value.get());
      Ring<kOfThread>::add(counted);
      return counted;
    }
  };

  // Null once the thread is ending: its places are gone, but destructors may still call.
  static OfThread* of_this_thread() {
    static thread_local bool ended = false;
    struct Owner {
      OfThread places;
      ~Owner() { ended = true; }
    };
    static thread_local Owner owner;
    return ended ? nullptr : &owner.places;
  }

  template <class Request>
  Held find_shared(const Request& request) {
    const std::lock_guard lock(mutex_);
    const Held* const hit = shared_.find(request);
    return hit == nullptr ? nullptr : *hit;
  }
  void share(Held value) {
    {
      const std::lock_guard lock(mutex_);
      shared_.last = (shared_.last + 1) % kShared;
      shared_.places[shared_.last].swap(value);
    }  // what made room is released here, outside the lock
  }

  ForkSafeMutex mutex_;
  Ring<kShared> shared_;
  std::atomic<std::int64_t> made_{0};
};

}  // namespace fovea::core

// The only cache of plans. Every call that repeats a request shares the value found for it.
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

// Keeps the last kShared values of the process and the last kPerThread values of each thread. A hit among the thread's
// own values takes no lock. Values are reference-counted: evicting one does not disturb a call that runs it.
// `Value::answers(request)` compares a value with a request.
template <class Value>
class PlanCache {
 public:
  using Held = std::shared_ptr<const Value>;
  static constexpr std::size_t kShared = 128, kPerThread = 16;

  // One cache for each type of value.
  static PlanCache& instance() {
    static auto& cache = never_destroyed<PlanCache>();
    (void)&made_at_load_;
    return cache;
  }

  // The cached value that answers the request, or else the value that `make()` returns. `make` runs without a lock, so
  // two threads with the same request may both call it.
  template <class Request, class Make>
  Held find(const Request& request, Make make) {
    ThreadRing* const own = ring_of_this_thread();
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
  template <std::size_t kSlots>
  struct Ring {
    std::array<Held, kSlots> slots;
    std::size_t last = 0;

    // Searches from the newest value to the oldest.
    template <class Request>
    const Held* find(const Request& request) const {
      for (std::size_t n = 0; n < kSlots; ++n) {
        const Held& one = slots[(last + kSlots - n) % kSlots];
        if (one != nullptr && one->answers(request)) return &one;
      }
      return nullptr;
    }
    void add(Held value) {
      last = (last + 1) % kSlots;
      slots[last].swap(value);
    }
  };

  // Each thread has a reference count of its own for a value, so that threads with the same plan do not write to a
  // shared cache line.
  struct ThreadRing : Ring<kPerThread> {
    Held add(const Held& value) {
      const auto shared = std::make_shared<Held>(value);
      const Held counted(shared, value.get());
      Ring<kPerThread>::add(counted);
      return counted;
    }
  };

  // Null once the thread's ring has been destroyed; later destructors of the thread may still call.
  static ThreadRing* ring_of_this_thread() {
    static thread_local bool ended = false;
    struct Owner {
      ThreadRing ring;
      ~Owner() { ended = true; }
    };
    static thread_local Owner owner;
    return ended ? nullptr : &owner.ring;
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
      shared_.slots[shared_.last].swap(value);
    }  // releases the evicted value, outside the lock
  }

  // Constructs the cache while the program is loaded, so that fork() cannot interrupt its construction.
  static inline const bool made_at_load_ = (instance(), true);

  ForkSafeMutex mutex_;
  Ring<kShared> shared_;
  std::atomic<std::int64_t> made_{0};
};

}  // namespace fovea::core

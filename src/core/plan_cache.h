// The only cache of plans. Every call that repeats a request shares the value found for it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "core/fork_safe_mutex.h"
#include "core/never_destroyed.h"

namespace fovea::core {

// Keeps the last kKept values of the process and as many of each thread. A hit among the thread's own values takes no
// lock. A request that is not among them, such as a thread's first, looks through the process's values under the
// cache's lock. Values are reference-counted: evicting one does not disturb a call that runs it. A request has a
// `hash`; `Value::answers(request)` compares a value with it.
template <class Value, std::size_t kMost = 128>
class PlanCache {
 public:
  using Held = std::shared_ptr<const Value>;
  static constexpr std::size_t kKept = kMost;

  // One cache for each type of value.
  static PlanCache& instance() {
    static auto& cache = never_destroyed<PlanCache>();
    (void)&made_at_load_;
    return cache;
  }

  // The cached value that answers the request, or else the value that `make()` returns. `make` runs without a lock, so
  // two threads with the same new request may both call it; both then get the value of the first to end. Neither waits
  // for the other, because a forked child would wait for ever for a thread that it does not have.
  template <class Request, class Make>
  Held find(const Request& request, Make make) {
    ThreadSlots* const own = slots_of_this_thread();
    if (own != nullptr) {
      if (const Held* const hit = own->find(request); hit != nullptr) return *hit;
    }
    Held value = find_shared(request);
    if (value == nullptr) {
      value = make();
      made_.fetch_add(1, std::memory_order_relaxed);
      value = share(request, value);
    }
    return own == nullptr ? value : own->add(request.hash, value);
  }

  // How many values were made so far, and how often a thread looked, under the lock, for one that it did not have.
  std::int64_t made() const { return made_.load(std::memory_order_relaxed); }
  std::int64_t shared_lookups() const { return shared_lookups_.load(std::memory_order_relaxed); }

 private:
  // The last kKept values. Those whose hashes have the same remainder form a list.
  class Slots {
   public:
    Slots() { firsts_.fill(kNone); }

    template <class Request>
    const Held* find(const Request& request) const {
      for (Index at = firsts_[request.hash % kKept]; at != kNone; at = slots_[at].next) {
        const Slot& slot = slots_[at];
        if (slot.hash == request.hash && slot.value->answers(request)) return &slot.value;
      }
      return nullptr;
    }

    // Returns the evicted value, for the caller to release.
    Held add(std::size_t hash, Held value) {
      const Index at = oldest_;
      oldest_ = static_cast<Index>((oldest_ + 1) % kKept);
      Slot& slot = slots_[at];
      if (slot.value != nullptr) unlink(at);
      slot.value.swap(value);
      slot.hash = hash;
      slot.next = std::exchange(firsts_[hash % kKept], at);
      return value;
    }

   private:
    using Index = std::uint16_t;
    static constexpr Index kNone = 0xffff;
    static_assert(kKept < kNone);
    struct Slot {
      Held value;
      std::size_t hash = 0;
      Index next = kNone;
    };

    void unlink(Index at) {
      Index* to = &firsts_[slots_[at].hash % kKept];
      while (*to != at) to = &slots_[*to].next;
      *to = slots_[at].next;
    }

    std::array<Slot, kKept> slots_;
    std::array<Index, kKept> firsts_;
    Index oldest_ = 0;
  };

  // Each thread has a reference count of its own for a value, so that threads with the same plan do not write to a
  // shared cache line.
  struct ThreadSlots : Slots {
    Held add(std::size_t hash, const Held& value) {
      const auto shared = std::make_shared<Held>(value);
      const Held counted(shared, value.get());
      Slots::add(hash, counted);
      return counted;
    }
  };

  // Null once the thread's slots have been destroyed; later destructors of the thread may still call.
  static ThreadSlots* slots_of_this_thread() {
    static thread_local bool ended = false;
    struct Owner {
      ThreadSlots slots;
      ~Owner() { ended = true; }
    };
    static thread_local Owner owner;
    return ended ? nullptr : &owner.slots;
  }

  template <class Request>
  Held find_shared(const Request& request) {
    shared_lookups_.fetch_add(1, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    const Held* const hit = shared_.find(request);
    return hit == nullptr ? nullptr : *hit;
  }
  // Returns the value that another thread shared for the request meanwhile, or else shares this one.
  template <class Request>
  Held share(const Request& request, const Held& value) {
    Held evicted;  // released outside the lock
    const std::lock_guard lock(mutex_);
    if (const Held* const other = shared_.find(request); other != nullptr) return *other;
    evicted = shared_.add(request.hash, value);
    return value;
  }

  // Constructs the cache while the program is loaded, so that fork() cannot interrupt its construction.
  static inline const bool made_at_load_ = (instance(), true);

  ForkSafeMutex mutex_;
  Slots shared_;
  std::atomic<std::int64_t> made_{0}, shared_lookups_{0};
};

}  // namespace fovea::core

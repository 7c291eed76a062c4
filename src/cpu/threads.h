// Running a function on several threads: the engine's own pool, or the threads that a host lends.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "fovea/threads.h"

namespace fovea::cpu {

// Calls task(argument, index) for every index in [0, count), the caller taking part, and returns when all have ended.
// Tasks do not throw. A call from inside a task, or while another thread's call runs, does all the work itself.
void run_tasks(const ThreadLender* lender, int count, void (*task)(void* argument, int index), void* argument);

// Calls work(item, runner) once for every item in [0, items) on at most `runners` threads; no two calls with the same
// runner overlap. Which runner takes an item is left to chance, so results must not depend on it. An item that
// returns false stops the rest; returns whether none did.
template <class Work>
bool for_each_item(const ThreadLender* lender, int runners, std::int64_t items, const Work& work) {
  struct Shared {
    const Work& work;
    std::int64_t items;
    std::atomic<std::int64_t> next{0};
    std::atomic<bool> stopped{false};
  } shared{work, items};
  const auto task = [](void* argument, int runner) {
    auto& s = *static_cast<Shared*>(argument);
    for (std::int64_t i = s.next++; i < s.items && !s.stopped.load(std::memory_order_relaxed); i = s.next++) {
      if (!s.work(i, runner)) s.stopped.store(true, std::memory_order_relaxed);
    }
  };
  const auto count = static_cast<int>(std::min<std::int64_t>(runners, items));
  if (count == 1) {
    task(&shared, 0);
  } else if (count > 1) {
    run_tasks(lender, count, task, &shared);
  }
  return !shared.stopped.load();
}

}  // namespace fovea::cpu

// Running a function on several threads: of the engine's own pool, or of an external thread pool.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "fovea/threads.h"

namespace fovea::cpu {

// Calls task(argument, index) for every index in [0, count), the caller taking part, and returns when all have ended.
// Tasks do not throw. A call from inside a task, or while another thread's call runs, does all the work itself.
void run_tasks(const ExternalThreadPool* thread_pool, int count, void (*task)(void* argument, int index),
               void* argument);

// Calls work(item, worker) once for every item in [0, items) on at most `workers` threads; no two calls with the same
// worker overlap. Which worker takes an item is left to chance, so results must not depend on it. An item that
// returns false stops the rest; returns whether none did.
template <class Work>
bool for_each_item(const ExternalThreadPool* thread_pool, int workers, std::int64_t items, const Work& work) {
  struct Shared {
    const Work& work;
    std::int64_t items;
    std::atomic<std::int64_t> next{0};
    std::atomic<bool> stopped{false};
  } shared{work, items};
  const auto task = [](void* argument, int worker) {
    auto& s = *static_cast<Shared*>(argument);
    for (std::int64_t i = s.next++; i < s.items && !s.stopped.load(std::memory_order_relaxed); i = s.next++) {
      if (!s.work(i, worker)) s.stopped.store(true, std::memory_order_relaxed);
    }
  };
  const auto count = static_cast<int>(std::min<std::int64_t>(workers, items));
  if (count == 1) {
    task(&shared, 0);
  } else if (count > 1) {
    run_tasks(thread_pool, count, task, &shared);
  }
  return !shared.stopped.load();
}

}  // namespace fovea::cpu

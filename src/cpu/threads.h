// Runs a function on several threads, from the engine's own pool or from an external thread pool.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "fovea/threads.h"

namespace fovea::cpu {

// Calls task(argument, index) for every index in [0, count) and returns when all have ended. The calling thread takes
// part. Tasks must not throw. A call from inside a task, or while another thread's call uses the pool, runs all tasks
// on the calling thread.
void run_tasks(const ExternalThreadPool* thread_pool, int count, void (*task)(void* argument, int index),
               void* argument);

// Calls work(item, worker) once for every item in [0, items) on at most `workers` threads. Calls with the same worker
// do not overlap. Any worker may take any item, so results must not depend on the worker. If an item returns false, no
// further item starts. Returns whether every item returned true.
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

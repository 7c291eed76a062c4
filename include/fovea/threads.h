// The threads of the CPU engine: its own pool, or a thread pool of the caller.
#pragma once

#include <cstdint>

#include "fovea/export.h"

namespace fovea {

inline constexpr int kMaxThreads = 4096;  // of a call; more are refused (invalid_argument)

// A thread pool of the caller. `run` must call task(argument, index, worker) once for every index in [0, count), on any
// of its threads, and return when all tasks have ended. `worker` is the thread's number, in [0, threads): tasks that
// run at once have different numbers. Tasks do not throw. If `run` returns before all tasks were run, the call fails
// with status error.
struct ExternalThreadPool {
  int threads = 1;
  void* host = nullptr;
  void (*run)(void* host, std::int64_t count, void (*task)(void* argument, std::int64_t index, int worker),
              void* argument) = nullptr;
};

// The number of threads of a call with neither options.threads nor a thread pool: FOVEA_THREADS if it is set. Otherwise
// the number of processors that this process was allowed when the library was loaded, at most the CPU quota of its
// control group. Throws Error with status invalid_argument if FOVEA_THREADS is no number from 1 to kMaxThreads.
FOVEA_API int default_threads();

}  // namespace fovea

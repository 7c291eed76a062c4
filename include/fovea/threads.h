// How the CPU engine gets its threads: its own pool, or threads that the host lends.
#pragma once

#include <cstdint>

#include "fovea/export.h"

namespace fovea {

// A host's thread pool. `run` must call task(argument, index, worker) once for every index in [0, count), on any of its
// threads, worker being that thread's number in [0, threads), and return when all have ended. Tasks do not throw. A
// call whose tasks were not all run ends with status error.
struct ThreadLender {
  int threads = 1;
  void* host = nullptr;
  void (*run)(void* host, std::int64_t count, void (*task)(void* argument, std::int64_t index, int worker),
              void* argument) = nullptr;
};

// Threads that a call uses when its options do not say: FOVEA_THREADS, or else the least of the processors that this
// process might run on when the library was loaded (its affinity) and the processor time that its control group grants.
FOVEA_API int default_threads();

}  // namespace fovea

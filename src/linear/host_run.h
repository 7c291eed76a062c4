// Linear's steps on the CPU: cut by shape alone, so that the bits do not depend on the number of threads.
#pragma once

#include <string>

#include "core/plan.h"
#include "linear/host_library.h"
#include "linear/steps.h"

namespace fovea::linear {

std::int64_t host_workspace_bytes(const HostLibrary& library, const LinearProblem& problem);

// How the problem is cut, one line for `explain`.
std::string host_tiles(const HostLibrary& library, const LinearProblem& problem);

// `steps` were made with the context's workspace.
void run_on_host(const HostLibrary& library, const LinearProblem& problem, const Steps& steps,
                 const core::RunContext& context);

// One product on the context's threads, by one-thread calls of the library. `scratch` has room for `workers` of
// scratch_of_tile() bytes each.
struct HostScratch {
  char* memory;
  int workers;
};
std::int64_t scratch_of_tile(const HostLibrary& library, const BatchedProduct& product);
void multiply(const HostLibrary& library, const BatchedProduct& product, const core::RunContext& context,
              const HostScratch& scratch);

}  // namespace fovea::linear

// Runs independent tasks on a call's threads. Tasks may throw, and the call may be cancelled.
#pragma once

#include <cstdint>
#include <functional>

#include "core/plan.h"

namespace fovea::cpu {

// Calls task(index, worker) once for each index in [0, count) and returns when all have ended. Calls with the same
// worker, 0 to workers - 1, do not overlap. The first exception stops the remaining tasks and is rethrown. Throws
// Error(cancelled) if the cancel flag is raised meanwhile.
void run_cancellable(const core::RunContext& context, int workers, std::int64_t count,
                     const std::function<void(std::int64_t index, int worker)>& task);

}  // namespace fovea::cpu

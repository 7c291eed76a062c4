// Independent tasks on a call's threads, which may fail and may be cancelled.
#pragma once

#include <cstdint>
#include <functional>

#include "core/plan.h"

namespace fovea::cpu {

// Calls task(index, worker) once for each index in [0, count), no two at once with the same worker of `workers`, and
// returns when all have ended. The first exception of a task stops the rest and is thrown on. Throws Error(cancelled)
// if the cancel flag was raised meanwhile.
void run_cancellable(const core::RunContext& context, int workers, std::int64_t count,
                     const std::function<void(std::int64_t index, int worker)>& task);

}  // namespace fovea::cpu

// Parallel work: a list of independent tasks, or blocks of rows of one matrix per (batch, query head).
#pragma once

#include <cstdint>
#include <functional>

#include "core/plan.h"

namespace fovea::baselines {

// Calls task(index) once for each index in [0, count) on the context's threads and returns when all have ended.
// Throws Error(cancelled) if the cancel flag was raised meanwhile.
void run_tasks(const core::RunContext& context, std::int64_t count, const std::function<void(std::int64_t)>& task);

struct RowBlock {
  std::int64_t batch, head;
  std::int64_t first, rows;
};

// Calls `task` for blocks that together cover `rows` rows of each of batch * heads matrices.
void for_each_block(const core::RunContext& context, std::int64_t batch, std::int64_t heads, std::int64_t rows,
                    const std::function<void(const RowBlock&)>& task);

}  // namespace fovea::baselines

// Row passes on the CPU. The bits do not depend on the number of threads.
#pragma once

#include <cstdint>

#include "core/plan.h"
#include "heads/row_pass.h"

namespace fovea::heads {

void forward_on_host(const RowPass& pass, const core::RunContext& context);
void backward_on_host(const RowPassBackward& pass, const core::RunContext& context);
void sum_on_host(const WeightGradient& sum, const core::RunContext& context);

// Rows of `partial` that backward of rows of this length writes.
std::int64_t partial_rows_on_host(std::int64_t len, const std::optional<Rotation>& rotation);

}  // namespace fovea::heads

// The engine's kernels for a transformer, each over a whole matrix on a call's threads. Work is split by the shape
// only, and partial sums are added in order, so that results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/plan.h"
#include "cpu/kernels/model_kernels.h"

namespace fovea::model {

// The number of pieces of work in `rows` rows; RMSNorm's backward needs a row of partial sums for each.
std::int64_t row_blocks(std::int64_t rows);

void rms_norm(const cpu::RmsNormTask& whole, const core::RunContext& context);

// `whole.dweight` is added to. `partials` has row_blocks(rows) rows, and one more.
void rms_norm_backward(const cpu::RmsNormBackwardTask& whole, float* partials, const core::RunContext& context);

void swiglu(const cpu::SwigluTask& whole, const core::RunContext& context);
void swiglu_backward(const cpu::SwigluBackwardTask& whole, const core::RunContext& context);
void gather(const cpu::GatherTask& whole, const core::RunContext& context);
void scatter(const cpu::ScatterTask& whole, const core::RunContext& context);
void cross_entropy(const cpu::CrossEntropyTask& whole, const core::RunContext& context);

// to = from, rounded to bf16.
void round(std::uint16_t* to, const float* from, std::int64_t count, const core::RunContext& context);

// The square root of the sum of squares. Pieces are summed in fp32, and their sums in double.
double norm_of(std::span<const float> values, const core::RunContext& context);

// Every task of the list, on the threads; the tasks must not overlap.
void adamw(const std::vector<cpu::AdamWTask>& whole, const core::RunContext& context);

}  // namespace fovea::model

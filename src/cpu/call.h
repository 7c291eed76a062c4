// One call as the kernels see it: the shape all tasks share, and the rows of each (batch, key head).
#pragma once

#include "core/implementation.h"
#include "cpu/kernels/kernels.h"

namespace fovea::cpu {

Shape shape_of(const AttentionProblem& problem);

// A sequence is the pair (batch, key head), counted batch * heads_kv + key head. These two functions are the only place
// where batch and head strides are multiplied.
InputRows query_rows(const AttentionProblem& problem, const TensorView& view, std::int64_t sequence);
InputRows key_rows(const AttentionProblem& problem, const TensorView& view, std::int64_t sequence);
OutputRows query_rows(const AttentionProblem& problem, const MutableTensorView& view, std::int64_t sequence);
OutputRows key_rows(const AttentionProblem& problem, const MutableTensorView& view, std::int64_t sequence);

// Runners that the workspace has room for, and those that this call uses.
int most_runners(std::int64_t tasks);
int runners_of(const core::RunContext& context, std::int64_t tasks);

CancelFlag cancel_flag(const core::RunContext& context);
[[noreturn]] void fail_cancelled(const AttentionProblem& problem, std::string_view call);

constexpr std::int64_t divide_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step; }
constexpr std::int64_t align_up(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace fovea::cpu

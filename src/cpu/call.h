// Converts a call to the kernels' structs: the shape that all tasks share, and the rows of each (batch, key head).
#pragma once

#include "attention/implementation.h"
#include "cpu/kernels/kernels.h"

namespace fovea::cpu {

// The scale is one that attention/scale.h does not refuse.
Shape shape_of(const AttentionProblem& problem);

// The pairs (batch, key head); the index of a sequence is batch * heads_kv + key head.
struct Sequences {
  std::int64_t count = 0, heads_kv = 0, group = 0;
};
Sequences sequences_of(const AttentionProblem& problem);

// The rows of one sequence. Only these functions use batch and head strides.
InputRows query_rows(const Sequences& all, const TensorView& view, std::int64_t sequence);
InputRows key_rows(const Sequences& all, const TensorView& view, std::int64_t sequence);
OutputRows query_rows(const Sequences& all, const MutableTensorView& view, std::int64_t sequence);
OutputRows key_rows(const Sequences& all, const MutableTensorView& view, std::int64_t sequence);

// The number of workers that the workspace for `tasks` tasks has room for, and the number that this call uses.
int most_workers(std::int64_t tasks);
int workers_of(const core::RunContext& context, int most, std::int64_t tasks);

// How many of `most` sequences run at the same time: enough that each worker has kTasksPerWorker tasks, so that workers
// end together, and no more, so that what the sequences share stays in the cache.
std::int64_t sequences_at_once(std::int64_t most, std::int64_t tasks_of_each, int workers);

CancelFlag cancel_flag(const core::RunContext& context);
[[noreturn]] void fail_cancelled(const core::Plan& plan);

constexpr std::int64_t divide_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step; }
constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) { return divide_up(value, step) * step; }
constexpr std::int64_t align_up(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace fovea::cpu

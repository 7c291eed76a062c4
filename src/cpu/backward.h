// Backward over threads: plan and run.
#pragma once

#include "cpu/call.h"

namespace fovea::cpu {

// How the keys of the sequences are split into tasks, and the layout of the workspace.
struct BackwardPlan final : attention::Plan {
  BackwardPlan(const Kernels& kernels, const AttentionProblem& problem);

  std::int64_t row_items() const;

  const Kernels& kernels;
  Shape shape;
  Sequences sequences;
  std::int64_t rows, chunks, chunk_keys;
  std::int64_t partial_bytes;  // dQ partials of one sequence; 0: tasks write dQ themselves
  std::int64_t scratch_bytes;  // per worker
  int most_workers;
};

void run_backward(const core::Plan& plan, const BackwardTensors& tensors, const core::RunContext& context);

}  // namespace fovea::cpu

// Backward over threads: plan and run.
#pragma once

#include "cpu/call.h"

namespace fovea::cpu {

// How the keys of the sequences become tasks, and where the workspace holds what.
struct BackwardPlan final : attention::Plan {
  BackwardPlan(const Kernels& kernels, const AttentionProblem& problem);

  std::int64_t row_items() const;

  const Kernels& kernels;
  Shape shape;
  Sequences sequences;
  std::int64_t rows, chunks, chunk_keys;
  std::int64_t partial_bytes;  // of one sequence
  std::int64_t scratch_bytes;  // of one worker
  int most_workers;
};

void run_backward(const core::Plan& plan, const BackwardTensors& tensors, const core::RunContext& context);

}  // namespace fovea::cpu

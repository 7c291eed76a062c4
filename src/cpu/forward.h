// Forward over threads: plan and run.
#pragma once

#include "cpu/call.h"

namespace fovea::cpu {

// How the query rows of the sequences are split into tasks, and the layout of the workspace.
struct ForwardPlan final : attention::Plan {
  ForwardPlan(const Kernels& kernels, const AttentionProblem& problem);

  const Kernels& kernels;
  Shape shape;
  Sequences sequences;
  std::int64_t rows, slab_rows, slabs, blocks;
  bool packs_itself;
  std::int64_t wave;              // sequences that are packed together
  std::int64_t k_bytes, v_bytes;  // packed K and V of one sequence
  std::int64_t packed_bytes;
  std::int64_t scratch_bytes;  // per worker
  int most_workers;
};

void run_forward(const core::Plan& plan, const ForwardTensors& tensors, const core::RunContext& context);

}  // namespace fovea::cpu

// Forward over threads: plans and run.
#pragma once

#include <memory>

#include "cpu/call.h"

namespace fovea::cpu {

// What every plan of forward has, and its run.
struct ForwardPlan : attention::Plan {
  ForwardPlan(const Kernels& kernels, const AttentionProblem& problem);
  virtual void run(const ForwardTensors& tensors, const core::RunContext& context) const = 0;

  const Kernels& kernels;
  Shape shape;
  Sequences sequences;
  std::int64_t rows;  // query rows of a sequence
};

// How the query rows of the sequences are split into tasks, and the layout of the workspace.
struct TiledForwardPlan final : ForwardPlan {
  TiledForwardPlan(const Kernels& kernels, const AttentionProblem& problem);
  void run(const ForwardTensors& tensors, const core::RunContext& context) const override;

  std::int64_t slab_rows, slabs, blocks;
  bool packs_itself;
  std::int64_t wave;              // sequences that are packed together
  std::int64_t k_bytes, v_bytes;  // packed K and V of one sequence
  std::int64_t packed_bytes;
  std::int64_t scratch_bytes;  // per worker
  int most_workers;
};

std::shared_ptr<const ForwardPlan> plan_forward(const Kernels& kernels, const AttentionProblem& problem);
void run_forward(const core::Plan& plan, const ForwardTensors& tensors, const core::RunContext& context);

}  // namespace fovea::cpu

// Backward over threads: plan and run.
#pragma once

#include <vector>

#include "cpu/call.h"

namespace fovea::cpu {

// How the keys of the sequences are split into tasks, and the layout of the workspace.
struct BackwardPlan final : attention::Plan {
  BackwardPlan(const Kernels& kernels, const AttentionProblem& problem);

  std::int64_t chunks() const { return static_cast<std::int64_t>(chunk_begins.size()) - 1; }

  const Kernels& kernels;
  Shape shape;
  Sequences sequences;
  std::int64_t rows, query_tiles;          // of one sequence
  std::vector<std::int64_t> chunk_begins;  // keys; then len_k
  std::int64_t wave;                       // sequences whose packed queries and partials exist at the same time
  std::int64_t packed_bytes;               // query tiles of one sequence; 0: each task packs them itself
  std::int64_t partial_floats;             // dQ partial of one chunk; 0: tasks write dQ themselves
  std::int64_t partial_bytes;              // dQ partials of one sequence
  std::int64_t scratch_bytes;              // per worker
  int most_workers;
};

void run_backward(const core::Plan& plan, const BackwardTensors& tensors, const core::RunContext& context);

}  // namespace fovea::cpu

// Forward for few query rows per key head over threads: plan and run.
#pragma once

#include "cpu/forward.h"

namespace fovea::cpu {

// How the keys that the rows see are split into chunks, and the layout of the workspace.
struct FewQueriesPlan final : ForwardPlan {
  FewQueriesPlan(const Kernels& kernels, const AttentionProblem& problem);

  static bool takes(const Kernels& kernels, const AttentionProblem& problem);
  void run(const ForwardTensors& tensors, const core::RunContext& context) const override;

  std::int64_t first_key, keys;  // those that some row sees
  std::int64_t chunks, chunk_keys;
  bool far;                    // K and V do not fit into the caches
  std::int64_t partial_bytes;  // per chunk
  std::int64_t scratch_bytes;  // per worker
  int most_workers;
};

}  // namespace fovea::cpu

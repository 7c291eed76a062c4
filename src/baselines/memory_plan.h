// The layout of the workspace, which both the plan and the run compute.
#pragma once

#include <cstdint>

#include "baselines/row_passes.h"
#include "fovea/problem.h"

namespace fovea::baselines {

// Arrays of floats, 64-byte aligned. Copies of tensors are used only if a library cannot read or write them in place.
struct ForwardMemory {
  float *q, *k, *v, *out;
  LogSumExp* lse;  // [batch, heads_q, len_q]
  float* scores;   // [batch, heads_q, len_q, len_k]; null if fp32 scores become the saved probabilities in place
  std::int64_t bytes;
};
ForwardMemory forward_memory(const AttentionProblem& problem, void* workspace);

struct BackwardMemory {
  float *q, *k, *v, *dout, *dq, *dk, *dv;
  float* delta;          // [batch, heads_q, len_q]
  float* probabilities;  // null if the products read the saved ones
  float* gradients;      // of the probabilities, then of the scores
  std::int64_t bytes;
};
BackwardMemory backward_memory(const AttentionProblem& problem, void* workspace);

}  // namespace fovea::baselines

// The layout of the workspace on the device, which both the plan and the run compute.
#pragma once

#include <cstdint>

#include "baselines/cuda/row_passes.h"
#include "baselines/form.h"
#include "fovea/attention.h"

namespace fovea::cuda::baselines {

// Arrays aligned to 256 bytes. Copies of tensors, in their own types, are used only if the library cannot use them in
// place.
struct ForwardMemory {
  void *q, *k, *v;
  LogSumExp* log_sum_exps;  // [batch, heads_q, len_q]
  void* probabilities;      // [batch, heads_q, len_q, len_k] in the inputs' type; null if they are saved
  float* scores;            // of the largest piece; null if fp32 scores become the probabilities in place
  Buffer products;
  std::int64_t bytes;
};
ForwardMemory forward_memory(fovea::baselines::Form form, const AttentionProblem& problem, void* workspace);

struct BackwardMemory {
  void *q, *k, *v, *dout;
  float *dk, *dv;       // sums over the query heads of a group; null without groups
  float* delta;         // [batch, heads_q, len_q]
  void* probabilities;  // as in forward
  void* gradients;      // dS, in the inputs' type
  float* scores;        // as in forward; later dP
  Buffer products;
  std::int64_t bytes;
};
BackwardMemory backward_memory(fovea::baselines::Form form, const AttentionProblem& problem, void* workspace);

}  // namespace fovea::cuda::baselines

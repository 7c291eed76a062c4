// Where everything lies in the workspace on the device: one layout that both the plan and the run compute.
#pragma once

#include <cstdint>

#include "baselines/cuda/row_passes.h"
#include "baselines/form.h"
#include "fovea/attention.h"

namespace fovea::cuda::baselines {

// Pieces aligned to 256 bytes. Copies of tensors, in their own types, are used only if the library cannot take them in
// place.
struct ForwardMemory {
  void *q, *k, *v;
  LogSumExp* lse;       // [batch, heads_q, len_q]
  void* probabilities;  // [batch, heads_q, len_q, len_k] in the inputs' type; null where they are saved
  float* scores;        // of the largest piece; null where fp32 scores turn into the probabilities in place
  Buffer products;
  std::int64_t bytes;
};
ForwardMemory forward_memory(fovea::baselines::Form form, const AttentionProblem& problem, void* workspace);

struct BackwardMemory {
  void *q, *k, *v, *dout;
  float *dk, *dv;       // sums over the heads of a group; null without groups
  float* delta;         // [batch, heads_q, len_q]
  void* probabilities;  // as in forward
  void* gradients;      // of the scores, in the inputs' type
  float* scores;        // as in forward; then gradients of probabilities
  Buffer products;
  std::int64_t bytes;
};
BackwardMemory backward_memory(fovea::baselines::Form form, const AttentionProblem& problem, void* workspace);

}  // namespace fovea::cuda::baselines

// Where the arrays of a run lie in the workspace. Found once, by the plan.
#pragma once

#include <cstdint>

#include "fovea/problem.h"

namespace fovea::baselines {

// Floats, 64-byte aligned.
struct Array {
  std::int64_t offset = -1;  // bytes; negative: there is none

  float* in(void* workspace) const {
    return offset < 0 ? nullptr : reinterpret_cast<float*>(static_cast<char*>(workspace) + offset);
  }
};

// Copies of tensors are used only if a library cannot read or write them in place.
struct ForwardLayout {
  Array q, k, v, out;
  Array lse;     // LogSumExp[batch, heads_q, len_q]
  Array scores;  // [batch, heads_q, len_q, len_k]; none if fp32 scores become the saved probabilities in place
  std::int64_t bytes = 0;
};
ForwardLayout forward_layout(const AttentionProblem& problem);

struct BackwardLayout {
  Array q, k, v, dout, dq, dk, dv;
  Array delta;          // [batch, heads_q, len_q]
  Array probabilities;  // none if the products read the saved ones
  Array gradients;      // of the probabilities, then of the scores
  std::int64_t bytes = 0;
};
BackwardLayout backward_layout(const AttentionProblem& problem);

}  // namespace fovea::baselines

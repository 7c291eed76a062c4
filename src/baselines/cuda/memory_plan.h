// Where the arrays of a run lie in the workspace on the device. Found once, by the plan.
#pragma once

#include <cstdint>

#include "fovea/problem.h"

namespace fovea::cuda::baselines {

// Aligned to 256 bytes, whatever the workspace's alignment.
struct Array {
  std::int64_t offset = -1;  // bytes from the workspace's first aligned byte; negative: there is none
  std::int64_t bytes = 0;

  void* in(void* workspace) const;  // null if there is none
};

// `pairs_of_piece`: scores of the largest piece (pieces.h). Copies of tensors, in their own types, are used only if the
// library cannot use them in place.
struct ForwardLayout {
  Array q, k, v;
  Array log_sum_exps;   // LogSumExp[batch, heads_q, len_q]
  Array probabilities;  // [batch, heads_q, len_q, len_k] in the inputs' type; none if they are saved
  Array scores;         // floats of the largest piece; none if fp32 scores become the probabilities in place
  Array products;       // the matrix library's workspace
  std::int64_t bytes = 0;
};
ForwardLayout forward_layout(const AttentionProblem& problem, std::int64_t pairs_of_piece);

struct BackwardLayout {
  Array q, k, v, dout;
  Array dk, dv;         // floats, sums over the query heads of a group; none without groups
  Array delta;          // float[batch, heads_q, len_q]
  Array probabilities;  // as in forward
  Array gradients;      // dS, in the inputs' type
  Array scores;         // as in forward; later dP
  Array products;
  std::int64_t bytes = 0;
};
BackwardLayout backward_layout(const AttentionProblem& problem, std::int64_t pairs_of_piece);

}  // namespace fovea::cuda::baselines

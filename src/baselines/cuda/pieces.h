// Which heads' fp32 scores stand in memory at once.
#pragma once

#include <cstdint>
#include <vector>

#include "fovea/problem.h"

namespace fovea::cuda::baselines {

// Neighbouring heads: whole batch elements, whole groups of one, or members of one group.
struct Piece {
  AttentionProblem problem;            // as if these heads were all
  std::int64_t batch = 0, head_q = 0;  // the first of them
  std::int64_t head_kv = 0;            // the first one's
  std::int64_t row = 0;                // of [batch, heads_q, len_q], the first one's first
};

// fp32 scores become the result in their own memory: one piece. Those of 16-bit inputs are read once and become a
// matrix of half their size elsewhere: pieces of up to 32 MiB, or of one head, that the L2 cache holds until they are
// read.
std::vector<Piece> pieces_of(const AttentionProblem& problem);
AttentionProblem largest_piece(const AttentionProblem& problem);  // without counting them all

}  // namespace fovea::cuda::baselines

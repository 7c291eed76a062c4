// Which scores are found at once: strips of rows, and of these the heads whose fp32 scores stand in memory together.
#pragma once

#include <cstdint>
#include <vector>

#include "baselines/form.h"
#include "fovea/problem.h"

namespace fovea::cuda::baselines {

// Rows [query, query + queries) of all heads, which see no key from `keys` on; rows before them see none from
// `keys_before` on.
struct Strip {
  std::int64_t query, queries;
  std::int64_t keys_before, keys;
};

// In order, all rows and, between one strip's end of keys and the next's, all keys. `fused` leaves out blocks that a
// mask hides; the other forms, and groups of heads, whose rows are folded into one product, have one strip.
std::vector<Strip> strips_of(fovea::baselines::Form form, const AttentionProblem& problem);

// The strip cut in two for products whose results one pass takes, where its upper half sees few enough of the keys;
// else itself. A second launch of that pass would cost more than the half saves.
std::vector<Strip> halves_of(fovea::baselines::Form form, const AttentionProblem& problem, const Strip& strip);

// The products of a strip's rows with the keys they see, and of its new keys with the rows that see them, as problems.
AttentionProblem rows_of(const AttentionProblem& problem, const Strip& strip);
AttentionProblem columns_of(const AttentionProblem& problem, const Strip& strip);

// Neighbouring heads of a strip: whole batch elements, whole groups of one, or members of one group.
struct Piece {
  AttentionProblem problem;            // as if these rows of these heads were all
  std::int64_t batch = 0, head_q = 0;  // the first of them
  std::int64_t head_kv = 0;            // the first one's
  std::int64_t query = 0;              // of the first row
  std::int64_t row = 0;                // that one, of [batch, heads_q, len_q]
  std::int64_t window_end = 0;         // its row i sees the keys before i + window_end
};

// fp32 scores become the result in their own memory: one piece. Those of 16-bit inputs are read once and become a
// matrix of half their size elsewhere: pieces of up to 128 MiB, or of one head.
std::vector<Piece> pieces_of(const AttentionProblem& problem, const Strip& strip);

// Scores of the largest piece, without counting them all.
std::int64_t most_pairs(fovea::baselines::Form form, const AttentionProblem& problem);

}  // namespace fovea::cuda::baselines

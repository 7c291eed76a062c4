// The scores that are computed at once: strips of rows, and pieces of strips whose fp32 scores are in memory together.
#pragma once

#include <cstdint>
#include <vector>

#include "baselines/form.h"
#include "fovea/problem.h"

namespace fovea::cuda::baselines {

// Rows [query, query + queries) of all heads. They see only keys before `keys`; earlier rows see only keys before
// `keys_before`.
struct Strip {
  std::int64_t query, queries;
  std::int64_t keys_before, keys;
};

// The strips in order; together they cover all rows, and their new keys cover all keys. With strips, `fused` skips
// tiles that are fully masked. The other forms have one strip, and so do grouped heads, whose rows are folded into one
// product.
std::vector<Strip> strips_of(fovea::baselines::Form form, const AttentionProblem& problem);

// The strip split in two for its products, if the upper half sees few enough keys; otherwise the strip itself. The pass
// after the products is not split: a second launch would cost more than it saves.
std::vector<Strip> halves_of(fovea::baselines::Form form, const AttentionProblem& problem, const Strip& strip);

// A strip's rows with the keys that they see, and a strip's new keys with the rows that see them, as problems.
AttentionProblem rows_of(const AttentionProblem& problem, const Strip& strip);
AttentionProblem columns_of(const AttentionProblem& problem, const Strip& strip);

// Neighbouring heads of a strip: whole batch elements, whole groups of one batch element, or members of one group.
struct Piece {
  AttentionProblem problem;            // only these rows of these heads
  std::int64_t batch = 0, head_q = 0;  // of the first head
  std::int64_t head_kv = 0;            // the key head of the first head
  std::int64_t query = 0;              // of the first row
  std::int64_t row = 0;                // index of the first row in [batch, heads_q, len_q]
  std::int64_t window_end = 0;         // row i of the piece sees the keys before i + window_end
};

// How many heads a piece has: batch elements, key heads, and members of a key head's group.
struct PieceSizes {
  std::int64_t batches, heads_kv, members;
};

// A strip and its parts.
struct StripPlan {
  Strip strip;
  std::vector<Strip> halves;
  AttentionProblem rows;  // rows_of the strip
  PieceSizes piece;       // the largest
};
std::vector<StripPlan> strip_plans(fovea::baselines::Form form, const AttentionProblem& problem);

// With fp32 inputs the scores become the result in place, so there is one piece. With 16-bit inputs the result is
// another matrix of half the size, and pieces have up to 128 MiB of scores, or one head.
std::vector<Piece> pieces_of(const AttentionProblem& problem, const StripPlan& strip);

// The number of scores of the largest piece.
std::int64_t most_pairs(const std::vector<StripPlan>& strips);

}  // namespace fovea::cuda::baselines

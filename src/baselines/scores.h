// The score matrix [batch, heads_q, len_q, len_k] in memory, and the visible keys of a row.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fovea/problem.h"
#include "linear/product.h"

namespace fovea::baselines {

// Element (batch, head, row, 0) of a dense score matrix.
inline std::int64_t score_index(const AttentionProblem& p, std::int64_t batch, std::int64_t head, std::int64_t row) {
  return ((batch * p.heads_q + head) * p.len_q + row) * p.len_k;
}

// P or dS as an operand of products. It lies in the memory of the scores, as fp32, or as bf16 in the first half of each
// row.
struct PairMatrix {
  const void* data;
  DType dtype;
  std::int64_t row_stride;  // elements

  linear::MatrixBatch matrix(const AttentionProblem& p, std::int64_t batch, std::int64_t head) const {
    const linear::MatrixBatch all{data, dtype, row_stride};
    return all.from((batch * p.heads_q + head) * p.len_q, 0);
  }
};

// The operand in the rows of a score matrix; narrowed in place if the inputs are bf16.
inline PairMatrix pair_matrix_in(const AttentionProblem& p, const float* scores) {
  const bool narrow = p.dtype == DType::bf16;
  return {scores, narrow ? DType::bf16 : DType::fp32, narrow ? 2 * p.len_k : p.len_k};
}

struct VisibleKeys {
  std::int64_t begin, end;
};

inline VisibleKeys visible_keys(const AttentionProblem& p, std::int64_t row) {
  const auto [begin, end] = key_window(p);
  const std::int64_t last = std::clamp<std::int64_t>(row + end, 0, p.len_k);
  return {std::clamp<std::int64_t>(row + begin, 0, last), last};
}

}  // namespace fovea::baselines

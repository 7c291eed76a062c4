// The score matrix [batch, heads_q, len_q, len_k] in memory, and the visible keys of a row.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fovea/problem.h"
#include "linear/product.h"

namespace fovea::baselines {

// P or dS as an operand of products. It lies in the memory of the scores, as fp32, or as bf16 in the first half of each
// row.
struct PairMatrix {
  const void* data = nullptr;
  DType dtype = DType::fp32;
  std::int64_t row_stride = 0;  // elements
};

struct VisibleKeys {
  std::int64_t begin, end;
};

// A problem's score matrices: dense, one per (batch, query head).
struct ScoreShape {
  explicit ScoreShape(const AttentionProblem& p)
      : heads(p.heads_q), len_q(p.len_q), len_k(p.len_k), is_bf16(p.dtype == DType::bf16), window(key_window(p)) {}

  // Element (batch, head, row, 0).
  std::int64_t index(std::int64_t batch, std::int64_t head, std::int64_t row) const {
    return ((batch * heads + head) * len_q + row) * len_k;
  }

  VisibleKeys visible_keys(std::int64_t row) const {
    const std::int64_t last = std::clamp<std::int64_t>(row + window.end, 0, len_k);
    return {std::clamp<std::int64_t>(row + window.begin, 0, last), last};
  }

  // The operand in the rows of a score matrix; narrowed in place if the inputs are bf16.
  PairMatrix pairs_in(const float* scores) const {
    return {scores, is_bf16 ? DType::bf16 : DType::fp32, is_bf16 ? 2 * len_k : len_k};
  }

  linear::MatrixBatch matrix(const PairMatrix& pairs, std::int64_t batch, std::int64_t head) const {
    const linear::MatrixBatch all{pairs.data, pairs.dtype, pairs.row_stride};
    return all.from((batch * heads + head) * len_q, 0);
  }

  std::int64_t heads, len_q, len_k;
  bool is_bf16;
  KeyWindow window;
};

}  // namespace fovea::baselines

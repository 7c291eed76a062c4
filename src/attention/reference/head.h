// The reference for one query head, in double precision. It computes single rows, so that callers can sample rows.
#pragma once

#include <cstdint>

#include "fovea/attention.h"

namespace fovea::reference {

// May query row i see key j? Written from the contract's rule for each mask; no kernel shares this code.
inline bool visible(const AttentionProblem& problem, std::int64_t i, std::int64_t j) {
  const auto& [alignment, left, right] = problem.mask;
  // How many keys j is after the row's own key. With bottom right, the last query's own key is the last key.
  const std::int64_t ahead =
      alignment == Mask::Alignment::bottom_right ? (problem.len_q - 1 - i) - (problem.len_k - 1 - j) : j - i;
  if (ahead < 0) return left == Mask::kUnlimited || -ahead <= left;
  return right == Mask::kUnlimited || ahead <= right;
}

// One query head of one batch element together with the key head that it reads, widened to double. If backward tensors
// lack lse, or lack both out and delta, the missing rows are computed.
class Head {
 public:
  // The number of doubles that `memory` must hold; the caller keeps it alive.
  static std::int64_t doubles(const AttentionProblem& problem);

  Head(const AttentionProblem& problem, const ForwardTensors& tensors, std::int64_t batch, std::int64_t head,
       double* memory);
  Head(const AttentionProblem& problem, const BackwardTensors& tensors, std::int64_t batch, std::int64_t head,
       double* memory);

  // Writes out [dim_v] of query row i and returns its lse.
  double forward_row(std::int64_t i, double* out) const;
  // Writes dq [dim_qk] of query row i.
  void query_gradient(std::int64_t i, double* dq) const;
  // Adds this query head's terms of key j's gradients to dk [dim_qk] and dv [dim_v].
  void add_key_gradients(std::int64_t j, double* dk, double* dv) const;

 private:
  struct Pair {
    double p, ds;  // probability, and gradient of the unscaled score
  };
  double score(std::int64_t i, std::int64_t j) const;  // scaled
  Pair pair(std::int64_t i, std::int64_t j) const;
  double* widen(const TensorView& view, std::int64_t batch, std::int64_t head);

  const AttentionProblem& problem_;
  double* free_;  // the unused rest of the memory
  double *q_ = nullptr, *k_ = nullptr, *v_ = nullptr, *dout_ = nullptr;
  double *lse_ = nullptr, *delta_ = nullptr;  // [len_q], backward only
  double* scores_ = nullptr;                  // [len_k], scratch of one row
};

}  // namespace fovea::reference

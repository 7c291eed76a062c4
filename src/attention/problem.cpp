// Visible keys, flops and bytes of a problem.
#include "fovea/problem.h"

#include <algorithm>

namespace fovea {

KeyWindow key_window(const AttentionProblem& problem) {
  const Mask& mask = problem.mask;
  const std::int64_t offset = mask.alignment == Mask::Alignment::bottom_right ? problem.len_k - problem.len_q : 0;
  // Bounds beyond these change nothing for any row.
  const std::int64_t least = -problem.len_q, most = problem.len_k;
  const auto bounded = [least, most](std::int64_t bound) { return std::clamp(bound, least, most); };
  return {mask.left == Mask::kUnlimited ? least : bounded(offset - mask.left),
          mask.right == Mask::kUnlimited ? most : bounded(offset + mask.right + 1)};
}

std::int64_t visible_pairs(const AttentionProblem& problem) {
  const auto [begin, end] = key_window(problem);
  const std::int64_t q = problem.len_q, k = problem.len_k;
  // The number of keys before i + bound, summed over the rows i: 0 up to row `first`, k from row `full` on, rising by
  // one per row between them.
  const auto keys_before = [q, k](std::int64_t bound) {
    const std::int64_t first = std::clamp<std::int64_t>(-bound, 0, q);
    const std::int64_t full = std::clamp<std::int64_t>(k - bound, first, q);
    const std::int64_t ramp = full - first;
    return ramp * (first + bound) + ramp * (ramp - 1) / 2 + (q - full) * k;
  };
  return keys_before(end) - keys_before(begin);
}

double flops(const AttentionProblem& problem) {
  const double pairs = static_cast<double>(visible_pairs(problem)) * static_cast<double>(problem.batch) *
                       static_cast<double>(problem.heads_q);
  const double qk = 2.0 * static_cast<double>(problem.dim_qk), pv = 2.0 * static_cast<double>(problem.dim_v);
  if (problem.pass == Pass::forward) return pairs * (qk + pv);
  // S, dQ and dK cost 2 dim_qk flops per pair; dP and dV cost 2 dim_v.
  return pairs * (3.0 * qk + 2.0 * pv);
}

double bytes(const AttentionProblem& problem) {
  const double b = static_cast<double>(problem.batch);
  const double rows_q = b * static_cast<double>(problem.heads_q) * static_cast<double>(problem.len_q);
  const double rows_k = b * static_cast<double>(problem.heads_kv) * static_cast<double>(problem.len_k);
  const double q = rows_q * static_cast<double>(problem.dim_qk), out = rows_q * static_cast<double>(problem.dim_v);
  const double k = rows_k * static_cast<double>(problem.dim_qk), v = rows_k * static_cast<double>(problem.dim_v);
  const double in = static_cast<double>(size_of(problem.dtype)),
               result = static_cast<double>(size_of(problem.result_dtype));
  const double lse = 4.0 * rows_q;
  if (problem.pass == Pass::forward) return in * (q + k + v) + result * out + lse;
  const double gradients = (problem.wants_dq ? q : 0) + (problem.wants_dk ? k : 0) + (problem.wants_dv ? v : 0);
  return in * (q + k + v + 2.0 * out) + lse + result * gradients * (problem.accumulate ? 2.0 : 1.0);
}

}  // namespace fovea

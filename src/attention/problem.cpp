// What follows from a problem alone: the keys each query sees, flops, bytes.
#include "fovea/problem.h"

#include <algorithm>

namespace fovea {

KeyWindow key_window(const AttentionProblem& problem) {
  // Causal is window(infinity, 0) along the diagonal; "infinity" is len_q below and len_k above, which no row exceeds.
  switch (problem.mask) {
    case Mask::none:
      return {-problem.len_q, problem.len_k};
    case Mask::causal:
    case Mask::causal_top_left:
      return {-problem.len_q, 1};
    case Mask::causal_bottom_right:
      return {-problem.len_q - problem.len_k, problem.len_k - problem.len_q + 1};
  }
  return {0, 0};
}

std::int64_t visible_pairs(const AttentionProblem& problem) {
  const auto [begin, end] = key_window(problem);
  (void)begin;  // no mask of today hides early keys
  const std::int64_t q = problem.len_q, k = problem.len_k;
  // Row i sees clamp(i + end, 0, k) keys: nothing before row `first`, everything from row `full` on, a ramp between.
  const std::int64_t first = std::clamp<std::int64_t>(-end, 0, q);
  const std::int64_t full = std::clamp<std::int64_t>(k - end, first, q);
  const std::int64_t ramp = full - first;
  return ramp * (first + end) + ramp * (ramp - 1) / 2 + (q - full) * k;
}

double flops(const AttentionProblem& problem) {
  const double pairs = static_cast<double>(visible_pairs(problem)) * static_cast<double>(problem.batch) *
                       static_cast<double>(problem.heads_q);
  const double qk = 2.0 * static_cast<double>(problem.dim_qk), pv = 2.0 * static_cast<double>(problem.dim_v);
  if (problem.pass == Pass::forward) return pairs * (qk + pv);
  // scores, dq and dk contract over keys or queries with dim_qk columns; dp and dv with dim_v.
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

// out_i = sum_j P_ij v_j with P_ij = exp(scale q_i.k_j - lse_i) over the visible keys j, and its gradients:
// dv_j = sum_i P_ij dout_i, dS_ij = P_ij (dout_i.v_j - delta_i), dq_i = scale sum_j dS_ij k_j, dk_j = scale sum_i dS_ij
// q_i with delta_i = dout_i.out_i.
#include "attention/reference/head.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/float16.h"

namespace fovea::reference {
namespace {

// Eight running sums: additions to a single one would wait for each other.
double dot(const double* a, const double* b, std::int64_t n) {
  double sums[8] = {};
  std::int64_t c = 0;
  for (; c + 8 <= n; c += 8) {
    for (int u = 0; u < 8; ++u) sums[u] += a[c + u] * b[c + u];
  }
  for (; c < n; ++c) sums[0] += a[c] * b[c];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

void add_scaled(double* sum, double factor, const double* row, std::int64_t n) {
  for (std::int64_t c = 0; c < n; ++c) sum[c] += factor * row[c];
}

}  // namespace

std::int64_t Head::doubles(const AttentionProblem& p) {
  return p.len_q * (p.dim_qk + p.dim_v + 2) + p.len_k * (p.dim_qk + p.dim_v + 1) + p.dim_v;
}

double* Head::widen(const TensorView& view, std::int64_t batch, std::int64_t head) {
  double* const rows = free_;
  const std::int64_t first = batch * view.strides[0] + head * view.strides[1];
  for (std::int64_t i = 0; i < view.sizes[2]; ++i) {
    for (std::int64_t c = 0; c < view.sizes[3]; ++c)
      *free_++ = core::load_as_float(view.data, view.dtype, first + i * view.strides[2] + c);
  }
  return rows;
}

Head::Head(const AttentionProblem& problem, const ForwardTensors& tensors, std::int64_t batch, std::int64_t head,
           double* memory)
    : problem_(problem), free_(memory) {
  const std::int64_t key_head = head / (problem.heads_q / problem.heads_kv);
  q_ = widen(tensors.q, batch, head);
  k_ = widen(tensors.k, batch, key_head);
  v_ = widen(tensors.v, batch, key_head);
  scores_ = free_;
  free_ += problem.len_k;
}

Head::Head(const AttentionProblem& problem, const BackwardTensors& tensors, std::int64_t batch, std::int64_t head,
           double* memory)
    : Head(problem, ForwardTensors{.q = tensors.q, .k = tensors.k, .v = tensors.v}, batch, head, memory) {
  dout_ = widen(tensors.dout, batch, head);
  lse_ = tensors.lse ? widen(tensors.lse, batch, head) : free_;
  if (!tensors.lse) free_ += problem.len_q;
  delta_ = tensors.delta ? widen(tensors.delta, batch, head) : free_;
  if (!tensors.delta) free_ += problem.len_q;
  double* const out = free_;  // [dim_v]
  for (std::int64_t i = 0; i < problem.len_q; ++i) {
    const bool computes_forward = !tensors.lse || (!tensors.delta && !tensors.out);
    const double lse = computes_forward ? forward_row(i, out) : 0;
    if (!tensors.lse) lse_[i] = lse;
    if (tensors.delta) continue;
    if (tensors.out) {
      const TensorView& o = tensors.out;
      const std::int64_t first = batch * o.strides[0] + head * o.strides[1] + i * o.strides[2];
      for (std::int64_t c = 0; c < problem.dim_v; ++c) out[c] = core::load_as_float(o.data, o.dtype, first + c);
    }
    delta_[i] = dot(dout_ + i * problem.dim_v, out, problem.dim_v);
  }
}

double Head::score(std::int64_t i, std::int64_t j) const {
  const auto& p = problem_;
  return p.scale * dot(q_ + i * p.dim_qk, k_ + j * p.dim_qk, p.dim_qk);
}

double Head::forward_row(std::int64_t i, double* out) const {
  const auto& p = problem_;
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  double largest = kNone, sum = 0;
  bool any = false;
  for (std::int64_t j = 0; j < p.len_k; ++j) {
    if (!visible(p, i, j)) continue;
    any = true;
    scores_[j] = score(i, j);
    largest = std::max(largest, scores_[j]);
  }
  std::fill(out, out + p.dim_v, 0.0);
  if (!any) return kNone;
  for (std::int64_t j = 0; j < p.len_k; ++j) {
    if (!visible(p, i, j)) continue;
    const double p_j = std::exp(scores_[j] - largest);  // NaN if a score is NaN or +inf, which poisons the row
    sum += p_j;
    add_scaled(out, p_j, v_ + j * p.dim_v, p.dim_v);
  }
  for (std::int64_t c = 0; c < p.dim_v; ++c) out[c] /= sum;
  return largest + std::log(sum);
}

Head::Pair Head::pair(std::int64_t i, std::int64_t j) const {
  const auto& p = problem_;
  const double probability = std::exp(score(i, j) - lse_[i]);
  const double dp = dot(dout_ + i * p.dim_v, v_ + j * p.dim_v, p.dim_v);
  return {probability, probability * (dp - delta_[i])};
}

void Head::query_gradient(std::int64_t i, double* dq) const {
  const auto& p = problem_;
  std::fill(dq, dq + p.dim_qk, 0.0);
  for (std::int64_t j = 0; j < p.len_k; ++j) {
    if (visible(p, i, j)) add_scaled(dq, p.scale * pair(i, j).ds, k_ + j * p.dim_qk, p.dim_qk);
  }
}

void Head::add_key_gradients(std::int64_t j, double* dk, double* dv) const {
  const auto& p = problem_;
  for (std::int64_t i = 0; i < p.len_q; ++i) {
    if (!visible(p, i, j)) continue;
    const Pair at = pair(i, j);
    add_scaled(dv, at.p, dout_ + i * p.dim_v, p.dim_v);
    add_scaled(dk, p.scale * at.ds, q_ + i * p.dim_qk, p.dim_qk);
  }
}

}  // namespace fovea::reference

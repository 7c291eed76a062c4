// Scores of a row, softmax, stored P, P v; gradients by the textbook formulas.
#include "verification/attention/plain.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "attention/reference/head.h"
#include "core/float16.h"

namespace fovea::verification {
namespace {

// From the first visible index to behind the last.
template <class IsVisible>
IndexRange range_of(std::int64_t count, const IsVisible& is_visible) {
  IndexRange range{0, 0};
  for (std::int64_t n = 0; n < count; ++n) {
    if (is_visible(n)) range = {range.end == 0 ? n : range.begin, n + 1};
  }
  return range;
}

}  // namespace

// Four forms, then the next start. Two of four starts are in base 2: one even and one odd, since the sum of two numbers
// has two orders.
PlainVariant plain_variant(std::int64_t repeat) {
  const std::int64_t form = repeat % 4, start = repeat / 4;
  return {.start = 7 * start,
          .fused = form % 2 == 1,
          .fused_delta = form == 3,
          .scaled_first = form == 2,
          .base_2 = (start + start / 2) % 2 == 1,
          .divided_last = form >= 2};
}

PlainHead::Matrix PlainHead::read(const TensorView& view, std::int64_t batch, std::int64_t head) const {
  Matrix m{view.sizes[2], view.sizes[3], {}, {}};
  m.values.resize(static_cast<std::size_t>(m.rows * m.columns));
  const std::int64_t first = batch * view.strides[0] + head * view.strides[1];
  const DType type = view.dtype;
  for (std::int64_t i = 0; i < m.rows; ++i) {
    const std::int64_t from = first + i * view.strides[2];
    float* const row = m.values.data() + i * m.columns;
    for (std::int64_t c = 0; c < m.columns; ++c) row[c] = core::load_as_float(view.data, type, from + c);
  }
  return m;
}

void PlainHead::Matrix::transpose() {
  transposed.resize(values.size());
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t c = 0; c < columns; ++c) transposed[static_cast<std::size_t>(c * rows + i)] = row(i)[c];
  }
}

IndexRange PlainHead::keys_seen_by(std::int64_t query) const {
  return range_of(problem_.len_k, [&](std::int64_t j) { return reference::visible(problem_, query, j); });
}

IndexRange PlainHead::queries_that_see(std::int64_t key) const {
  return range_of(problem_.len_q, [&](std::int64_t i) { return reference::visible(problem_, i, key); });
}

void PlainHead::multiply(const float* row, const Matrix& matrix, IndexRange range, std::vector<float>& products) const {
  RowSums sums(range.end - range.begin, variant_.rounding());
  variant_.for_each(matrix.columns, {0, matrix.columns}, [&](std::int64_t c) {
    sums.add(row[c], matrix.transposed.data() + c * matrix.rows + range.begin);
  });
  products.resize(static_cast<std::size_t>(matrix.rows));
  std::copy(sums.finish().begin(), sums.finish().end(), products.begin() + range.begin);
}

float PlainHead::stored(float value) const { return variant_.fused ? value : rounded_to(problem_.dtype, value); }

PlainHead::PlainHead(const AttentionProblem& problem, const ForwardTensors& tensors, std::int64_t batch,
                     std::int64_t head, PlainVariant variant)
    : problem_(problem), variant_(variant) {
  const std::int64_t key_head = head / (problem.heads_q / problem.heads_kv);
  q_ = read(tensors.q, batch, head);
  k_ = read(tensors.k, batch, key_head);
  v_ = read(tensors.v, batch, key_head);
  k_.transpose();
  largest_.resize(static_cast<std::size_t>(problem.len_q));
  sum_.resize(static_cast<std::size_t>(problem.len_q));
}

PlainHead::PlainHead(const AttentionProblem& problem, const BackwardTensors& tensors, std::int64_t batch,
                     std::int64_t head, PlainVariant variant)
    : PlainHead(problem, ForwardTensors{.q = tensors.q, .k = tensors.k, .v = tensors.v}, batch, head, variant) {
  const AttentionProblem& p = problem;
  dout_ = read(tensors.dout, batch, head);
  for (Matrix* const one : {&q_, &v_, &dout_}) one->transpose();
  if (tensors.delta) delta_ = read(tensors.delta, batch, head).values;
  const bool given_lse = bool(tensors.lse);
  if (given_lse) {
    largest_ = read(tensors.lse, batch, head).values;
    for (float& lse : largest_) lse *= unit();
    sum_.assign(sum_.size(), 1.0f);
  }
  if (given_lse && tensors.delta) return;
  const Matrix out = tensors.out ? read(tensors.out, batch, head) : Matrix{};
  std::vector<double> row(static_cast<std::size_t>(p.dim_v));
  delta_.resize(static_cast<std::size_t>(p.len_q));
  for (std::int64_t i = 0; i < p.len_q; ++i) {
    if (!given_lse) {
      const auto at = static_cast<std::size_t>(i);
      const auto lse = static_cast<float>(forward_row(i, row.data()));
      if (variant_.divided_last) largest_[at] = lse * unit(), sum_[at] = 1;
    }
    if (tensors.delta) continue;
    float delta = 0;
    // Sums backwards. In the order of dout v, dP - delta would cancel exactly in rows that see one key.
    for (std::int64_t n = p.dim_v - 1; n >= 0; --n) {
      const auto c = static_cast<std::size_t>(variant_(n, p.dim_v)), at = static_cast<std::size_t>(i * p.dim_v) + c;
      const float value = tensors.out ? out.values[at] : static_cast<float>(row[c]);
      delta = variant_.fused_delta ? std::fma(dout_.values[at], value, delta) : delta + dout_.values[at] * value;
    }
    delta_[static_cast<std::size_t>(i)] = delta;
  }
}

double PlainHead::forward_row(std::int64_t i, double* out) {
  const AttentionProblem& p = problem_;
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const IndexRange seen = keys_seen_by(i);
  std::fill(out, out + p.dim_v, 0.0);
  if (seen.begin == seen.end) return kNone;
  multiply(q_.values.data() + i * p.dim_qk, k_, seen, scores_);
  float largest = kNone, sum = 0;
  for (std::int64_t j = seen.begin; j < seen.end; ++j)
    largest = std::max(largest, scores_[static_cast<std::size_t>(j)] * factor());
  largest_[static_cast<std::size_t>(i)] = largest;
  variant_.for_each(p.len_k, seen,
                    [&](std::int64_t j) { sum += exponential(i, scores_[static_cast<std::size_t>(j)]); });
  sum_[static_cast<std::size_t>(i)] = sum;
  RowSums out_sums(p.dim_v, variant_.rounding());
  variant_.for_each(p.len_k, seen, [&](std::int64_t j) {
    const float score = scores_[static_cast<std::size_t>(j)];
    out_sums.add(variant_.divided_last ? stored(exponential(i, score)) : probability(i, score), v_.row(j));
  });
  const std::vector<float>& sums = out_sums.finish();
  for (std::size_t c = 0; c < sums.size(); ++c) out[c] = variant_.divided_last ? sums[c] / sum : sums[c];
  return variant_.base_2 ? (largest + std::log2(sum)) * std::numbers::ln2_v<float> : largest + std::log(sum);
}

float PlainHead::unit() const { return variant_.base_2 ? std::numbers::log2e_v<float> : 1.0f; }

float PlainHead::factor() const { return static_cast<float>(problem_.scale) * unit(); }

float PlainHead::exponential(std::int64_t i, float score) const {
  const float largest = largest_[static_cast<std::size_t>(i)];
  const float exponent = variant_.fused ? std::fma(score, factor(), -largest) : score * factor() - largest;
  return variant_.base_2 ? std::exp2(exponent) : std::exp(exponent);
}

float PlainHead::probability(std::int64_t i, float score) const {
  return stored(exponential(i, score) / sum_[static_cast<std::size_t>(i)]);
}

void PlainHead::query_gradient(std::int64_t i, double* dq) {
  const AttentionProblem& p = problem_;
  const IndexRange seen = keys_seen_by(i);
  multiply(q_.values.data() + i * p.dim_qk, k_, seen, scores_);
  multiply(dout_.values.data() + i * p.dim_v, v_, seen, dp_);
  const auto scale = static_cast<float>(p.scale), first = variant_.scaled_first ? scale : 1.0f;
  RowSums dq_sums(p.dim_qk, variant_.rounding());
  if (variant_.fused) std::copy(dq, dq + p.dim_qk, dq_sums.finish().begin());  // continues the former values
  variant_.for_each(p.len_k, seen, [&](std::int64_t j) {
    const auto at = static_cast<std::size_t>(j);
    const float p_ij = probability(i, scores_[at]);
    const float ds =
        stored(p_ij * (dp_[at] - delta_[static_cast<std::size_t>(i)]) * first) * (variant_.fused ? scale : 1.0f);
    dq_sums.add(ds, k_.row(j));
  });
  const std::vector<float>& sums = dq_sums.finish();
  for (std::int64_t c = 0; c < p.dim_qk; ++c)
    dq[c] = sums[static_cast<std::size_t>(c)] * (variant_.scaled_first || variant_.fused ? 1.0f : scale);
}

void PlainHead::add_key_gradients(std::int64_t j, double* dk, double* dv) {
  const AttentionProblem& p = problem_;
  const auto scale = static_cast<float>(p.scale), first = variant_.scaled_first ? scale : 1.0f;
  const IndexRange seeing = queries_that_see(j);
  multiply(k_.values.data() + j * p.dim_qk, q_, seeing, scores_);
  multiply(v_.values.data() + j * p.dim_v, dout_, seeing, dp_);
  RowSums dk_sums(p.dim_qk, variant_.rounding()), dv_sums(p.dim_v, variant_.rounding());
  if (variant_.fused) {  // continues the former values, and the sums of the previous head
    std::copy(dk, dk + p.dim_qk, dk_sums.finish().begin());
    std::copy(dv, dv + p.dim_v, dv_sums.finish().begin());
  }
  variant_.for_each(p.len_q, seeing, [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    const float p_ij = probability(i, scores_[at]);
    const float ds = stored(p_ij * (dp_[at] - delta_[at]) * first) * (variant_.fused ? scale : 1.0f);
    dv_sums.add(p_ij, dout_.row(i));
    dk_sums.add(ds, q_.row(i));
  });
  const std::vector<float>&sums_k = dk_sums.finish(), &sums_v = dv_sums.finish();
  for (std::size_t c = 0; c < sums_v.size(); ++c)
    dv[c] = variant_.fused ? sums_v[c] : static_cast<float>(dv[c]) + sums_v[c];
  for (std::size_t c = 0; c < sums_k.size(); ++c)
    dk[c] = variant_.fused ? sums_k[c] : static_cast<float>(dk[c]) + sums_k[c] * (variant_.scaled_first ? 1.0f : scale);
}

}  // namespace fovea::verification

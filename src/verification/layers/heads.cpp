// The CPU's evaluator. Attention between the heads of a layer: by the formula in double precision, and by attention's
// plain evaluation.
#include <algorithm>
#include <cmath>
#include <functional>

#include "attention/reference/head.h"
#include "core/never_destroyed.h"
#include "verification/attention/evaluation.h"
#include "verification/layers/evaluator.h"

namespace fovea::verification {
namespace {

// The columns of one head, and the rows of one batch element.
Matrix<double> head_of(const Matrix<double>& m, std::int64_t batch, std::int64_t len, std::int64_t head,
                       std::int64_t dim) {
  Matrix<double> rows(len, dim);
  for (std::int64_t i = 0; i < len; ++i) std::copy_n(m.row(batch * len + i) + head * dim, dim, rows.row(i));
  return rows;
}

void add_head(const Matrix<double>& rows, double factor, std::int64_t batch, std::int64_t head, Matrix<double>& m) {
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    double* const to = m.row(batch * rows.rows + i) + head * rows.columns;
    for (std::int64_t c = 0; c < rows.columns; ++c) to[c] += factor * rows.row(i)[c];
  }
}

void for_each_row(const Matrix<double>& m, const std::function<void(std::int64_t)>& work) {
  constexpr double kCostOfExp = 10;  // in multiply-adds
  const double cost = kCostOfExp * static_cast<double>(m.values.size());
  for_each_block(m.rows, 16, cost, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) work(i);
  });
}

// a b, or a^T b. Pairs that the mask hides are 0 in a, and add nothing even where b is not finite.
Matrix<double> seen_product(const AttentionProblem& p, const Matrix<double>& a, const Matrix<double>& b,
                            bool transposes) {
  const bool finite = std::ranges::all_of(b.values, [](double value) { return std::isfinite(value); });
  if (finite) return transposes ? product(transposed(a), b) : product(a, b);
  Matrix<double> sums(transposes ? a.columns : a.rows, b.columns);
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < a.columns; ++j) {
      if (!reference::visible(p, i, j)) continue;
      for (std::int64_t c = 0; c < b.columns; ++c)
        sums.row(transposes ? j : i)[c] += a.row(i)[j] * b.row(transposes ? i : j)[c];
    }
  }
  return sums;
}

// exp(s - lse) of the keys that a row sees; 0 elsewhere. One NaN makes all probabilities of its row NaN.
Matrix<double> probabilities_of(const AttentionProblem& p, const Matrix<double>& q, const Matrix<double>& k) {
  Matrix<double> scores = product(q, transposed(k));
  for_each_row(scores, [&](std::int64_t i) {
    double* const row = scores.row(i);
    double largest = -HUGE_VAL, sum = 0;
    bool is_nan = false;
    for (std::int64_t j = 0; j < p.len_k; ++j) {
      row[j] = reference::visible(p, i, j) ? p.scale * row[j] : -HUGE_VAL;
      largest = std::max(largest, row[j]);
      is_nan = is_nan || std::isnan(row[j]);
    }
    if (is_nan) {
      for (std::int64_t j = 0; j < p.len_k; ++j) row[j] = reference::visible(p, i, j) ? std::nan("") : 0;
      return;
    }
    for (std::int64_t j = 0; j < p.len_k && largest != -HUGE_VAL; ++j) sum += row[j] = std::exp(row[j] - largest);
    for (std::int64_t j = 0; j < p.len_k; ++j) row[j] = sum > 0 ? row[j] / sum : 0;
  });
  return scores;
}

// dS = P (dP - delta) with delta the sum of P dP over the row; written over dP.
void differentiate_softmax(const AttentionProblem& p, const Matrix<double>& probabilities, Matrix<double>& dp) {
  for_each_row(dp, [&](std::int64_t i) {
    const double* const row = probabilities.row(i);
    double delta = 0;
    for (std::int64_t j = 0; j < dp.columns; ++j) delta += reference::visible(p, i, j) ? row[j] * dp.row(i)[j] : 0;
    for (std::int64_t j = 0; j < dp.columns; ++j)
      dp.row(i)[j] = reference::visible(p, i, j) ? row[j] * (dp.row(i)[j] - delta) : 0;
  });
}

// A view of [batch, heads, len, dim] on a matrix with rows (batch, len) and columns (head, dim).
TensorView view_of(const Matrix<float>& m, std::int64_t batch, std::int64_t len, std::int64_t heads, std::int64_t dim) {
  return {m.values.data(), DType::fp32, {batch, heads, len, dim}, {len * m.columns, dim, m.columns, 1}};
}

Sample every_row(const AttentionProblem& p) {
  constexpr double kSeveralThreads = 1e8;
  Sample sample{every_query(p), {}, flops(p) < kSeveralThreads};  // a sample that is not complete runs on threads
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t h = 0; h < p.heads_kv; ++h) {
      for (std::int64_t j = 0; j < p.len_k; ++j) sample.keys.push_back({b, h, j});
    }
  }
  return sample;
}

Matrix<float> matrix_of(const RowValues& values, std::int64_t batch, std::int64_t len, std::int64_t heads) {
  Matrix<float> m(batch * len, heads * values.columns);
  for (std::size_t n = 0; n < values.rows.size(); ++n) {
    const auto& [b, h, i] = values.rows[n];
    const double* const from = values.values.data() + static_cast<std::int64_t>(n) * values.columns;
    std::transform(from, from + values.columns, m.row(b * len + i) + h * values.columns,
                   [](double value) { return static_cast<float>(value); });
  }
  return m;
}

// The operand itself, or its transpose in the memory given.
template <class Number>
const Matrix<Number>& matrix_of(const Operand<Number>& operand, Matrix<Number>& memory) {
  if (!operand.is_transposed) return operand.matrix;
  memory = transposed(operand.matrix);
  return memory;
}

}  // namespace

Matrix<double> LayerEvaluator::multiply(const Operand<double>& a, const Operand<double>& b,
                                        const Matrix<double>& added) const {
  Matrix<double> own_a, own_b;
  return product(matrix_of(a, own_a), matrix_of(b, own_b), added);
}

Matrix<double> LayerEvaluator::multiply(const Operand<double>& a, const Operand<float>& b) const {
  Matrix<float> own_b;
  return LayerEvaluator::multiply(a, cast<double>(matrix_of(b, own_b)), {});
}

Matrix<float> LayerEvaluator::multiply(const Operand<float>& a, const Operand<float>& b, const Matrix<float>& added,
                                       const PlainVariant& variant) const {
  Matrix<float> own_a, own_b;
  return product(matrix_of(a, own_a), matrix_of(b, own_b), variant, added);
}

Matrix<double> LayerEvaluator::attend(const AttentionProblem& p, const Heads<double>& heads) const {
  Matrix<double> out(p.batch * p.len_q, p.heads_q * p.dim_v);
  for (std::int64_t n = 0; n < p.batch * p.heads_q; ++n) {
    const std::int64_t batch = n / p.heads_q, h = n % p.heads_q, key_head = h / (p.heads_q / p.heads_kv);
    const Matrix<double> probabilities = probabilities_of(p, head_of(heads.q, batch, p.len_q, h, p.dim_qk),
                                                          head_of(heads.k, batch, p.len_k, key_head, p.dim_qk));
    add_head(seen_product(p, probabilities, head_of(heads.v, batch, p.len_k, key_head, p.dim_v), false), 1, batch, h,
             out);
  }
  return out;
}

Heads<double> LayerEvaluator::attend_backward(const AttentionProblem& p, const Heads<double>& heads,
                                              const Matrix<double>& dout) const {
  Heads<double> gradients{Matrix<double>(p.batch * p.len_q, p.heads_q * p.dim_qk),
                          Matrix<double>(p.batch * p.len_k, p.heads_kv * p.dim_qk),
                          Matrix<double>(p.batch * p.len_k, p.heads_kv * p.dim_v)};
  for (std::int64_t n = 0; n < p.batch * p.heads_q; ++n) {
    const std::int64_t batch = n / p.heads_q, h = n % p.heads_q, key_head = h / (p.heads_q / p.heads_kv);
    const Matrix<double> q = head_of(heads.q, batch, p.len_q, h, p.dim_qk),
                         k = head_of(heads.k, batch, p.len_k, key_head, p.dim_qk),
                         v = head_of(heads.v, batch, p.len_k, key_head, p.dim_v),
                         dout_h = head_of(dout, batch, p.len_q, h, p.dim_v);
    const Matrix<double> probabilities = probabilities_of(p, q, k);
    add_head(seen_product(p, probabilities, dout_h, true), 1, batch, key_head, gradients.v);
    Matrix<double> ds = product(dout_h, transposed(v));
    differentiate_softmax(p, probabilities, ds);
    add_head(seen_product(p, ds, k, false), p.scale, batch, h, gradients.q);
    add_head(seen_product(p, ds, q, true), p.scale, batch, key_head, gradients.k);
  }
  return gradients;
}

Matrix<float> LayerEvaluator::attend(const AttentionProblem& p, const Heads<float>& heads,
                                     const PlainVariant& variant) const {
  const ForwardTensors tensors{.q = view_of(heads.q, p.batch, p.len_q, p.heads_q, p.dim_qk),
                               .k = view_of(heads.k, p.batch, p.len_k, p.heads_kv, p.dim_qk),
                               .v = view_of(heads.v, p.batch, p.len_k, p.heads_kv, p.dim_v)};
  return matrix_of(evaluate_plain(p, tensors, every_row(p), variant).out, p.batch, p.len_q, p.heads_q);
}

// Kernels may sum scores otherwise in backward than in forward. Where q and k repeat one number, all of a row's errors
// have one sign, and P is off by their sum.
std::optional<PlainVariant> variant_of_lse(const PlainVariant& backward) {
  if (!backward.divided_last) return std::nullopt;
  PlainVariant other = backward;
  other.fused = !backward.fused;
  return other;
}

Heads<float> LayerEvaluator::attend_backward(const AttentionProblem& p, const Heads<float>& heads,
                                             const Matrix<float>& out, const Matrix<float>& dout,
                                             const PlainVariant& variant) const {
  BackwardTensors tensors{.q = view_of(heads.q, p.batch, p.len_q, p.heads_q, p.dim_qk),
                          .k = view_of(heads.k, p.batch, p.len_k, p.heads_kv, p.dim_qk),
                          .v = view_of(heads.v, p.batch, p.len_k, p.heads_kv, p.dim_v)};
  tensors.out = view_of(out, p.batch, p.len_q, p.heads_q, p.dim_v);
  tensors.dout = view_of(dout, p.batch, p.len_q, p.heads_q, p.dim_v);
  Matrix<float> lse;
  if (const auto other = variant_of_lse(variant)) {
    const ForwardTensors forward{.q = tensors.q, .k = tensors.k, .v = tensors.v};
    lse = matrix_of(evaluate_plain(p, forward, every_row(p), *other).lse, p.batch, p.len_q, p.heads_q);
    tensors.lse = view_of(lse, p.batch, p.len_q, p.heads_q, 1);
  }
  const BackwardValues values = evaluate_plain(p, tensors, every_row(p), variant);
  return {matrix_of(values.dq, p.batch, p.len_q, p.heads_q), matrix_of(values.dk, p.batch, p.len_k, p.heads_kv),
          matrix_of(values.dv, p.batch, p.len_k, p.heads_kv)};
}

const LayerEvaluator& layer_evaluator_on_cpu() {
  static const auto& evaluator = core::never_destroyed<LayerEvaluator>();
  return evaluator;
}

}  // namespace fovea::verification

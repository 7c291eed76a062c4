// Attention between the heads of a layer's evaluation: by the reference, and by attention's plain evaluation.
#include <algorithm>

#include "attention/reference/head.h"
#include "verification/attention/evaluation.h"
#include "verification/layers/evaluation.h"

namespace fovea::verification {
namespace {

// The columns of one head, and the rows of one batch element, as dense rows.
std::vector<double> rows_of(const Matrix<double>& m, std::int64_t batch, std::int64_t len, std::int64_t head,
                            std::int64_t dim) {
  std::vector<double> rows;
  rows.reserve(static_cast<std::size_t>(len * dim));
  for (std::int64_t i = 0; i < len; ++i) {
    const double* const row = m.row(batch * len + i) + head * dim;
    rows.insert(rows.end(), row, row + dim);
  }
  return rows;
}

struct HeadInputs {
  std::vector<double> q, k, v, dout, memory;
  reference::HeadRows rows() const { return {q.data(), k.data(), v.data(), dout.empty() ? nullptr : dout.data()}; }
};

HeadInputs inputs_of(const AttentionProblem& p, const Heads<double>& heads, const Matrix<double>* dout,
                     std::int64_t batch, std::int64_t head) {
  const std::int64_t key_head = head / (p.heads_q / p.heads_kv);
  HeadInputs inputs{rows_of(heads.q, batch, p.len_q, head, p.dim_qk),
                    rows_of(heads.k, batch, p.len_k, key_head, p.dim_qk),
                    rows_of(heads.v, batch, p.len_k, key_head, p.dim_v),
                    {},
                    std::vector<double>(static_cast<std::size_t>(reference::Head::doubles(p)))};
  if (dout != nullptr) inputs.dout = rows_of(*dout, batch, p.len_q, head, p.dim_v);
  return inputs;
}

double work_of(const AttentionProblem& p) { return flops(p) / 2; }

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

}  // namespace

Matrix<double> ExactArithmetic::attend(const AttentionProblem& p, const Heads<double>& heads) const {
  Matrix<double> out(p.batch * p.len_q, p.heads_q * p.dim_v);
  for_each_block(p.batch * p.heads_q, 1, work_of(p), [&](std::int64_t n, std::int64_t) {
    const std::int64_t batch = n / p.heads_q, h = n % p.heads_q;
    HeadInputs inputs = inputs_of(p, heads, nullptr, batch, h);
    const reference::Head head(p, inputs.rows(), inputs.memory.data());
    for (std::int64_t i = 0; i < p.len_q; ++i) head.forward_row(i, out.row(batch * p.len_q + i) + h * p.dim_v);
  });
  return out;
}

Heads<double> ExactArithmetic::attend_backward(const AttentionProblem& p, const Heads<double>& heads,
                                               const Matrix<double>&, const Matrix<double>& dout) const {
  Heads<double> gradients{Matrix<double>(p.batch * p.len_q, p.heads_q * p.dim_qk),
                          Matrix<double>(p.batch * p.len_k, p.heads_kv * p.dim_qk),
                          Matrix<double>(p.batch * p.len_k, p.heads_kv * p.dim_v)};
  const std::int64_t group = p.heads_q / p.heads_kv;
  for_each_block(p.batch * p.heads_kv, 1, work_of(p), [&](std::int64_t n, std::int64_t) {
    const std::int64_t batch = n / p.heads_kv, key_head = n % p.heads_kv;
    for (std::int64_t h = key_head * group; h < (key_head + 1) * group; ++h) {
      HeadInputs inputs = inputs_of(p, heads, &dout, batch, h);
      const reference::Head head(p, inputs.rows(), inputs.memory.data());
      for (std::int64_t i = 0; i < p.len_q; ++i)
        head.query_gradient(i, gradients.q.row(batch * p.len_q + i) + h * p.dim_qk);
      for (std::int64_t j = 0; j < p.len_k; ++j)
        head.add_key_gradients(j, gradients.k.row(batch * p.len_k + j) + key_head * p.dim_qk,
                               gradients.v.row(batch * p.len_k + j) + key_head * p.dim_v);
    }
  });
  return gradients;
}

Matrix<float> PlainArithmetic::attend(const AttentionProblem& p, const Heads<float>& heads) const {
  const ForwardTensors tensors{.q = view_of(heads.q, p.batch, p.len_q, p.heads_q, p.dim_qk),
                               .k = view_of(heads.k, p.batch, p.len_k, p.heads_kv, p.dim_qk),
                               .v = view_of(heads.v, p.batch, p.len_k, p.heads_kv, p.dim_v)};
  return matrix_of(evaluate_plain(p, tensors, every_row(p), variant_).out, p.batch, p.len_q, p.heads_q);
}

Heads<float> PlainArithmetic::attend_backward(const AttentionProblem& p, const Heads<float>& heads,
                                              const Matrix<float>& out, const Matrix<float>& dout) const {
  BackwardTensors tensors{.q = view_of(heads.q, p.batch, p.len_q, p.heads_q, p.dim_qk),
                          .k = view_of(heads.k, p.batch, p.len_k, p.heads_kv, p.dim_qk),
                          .v = view_of(heads.v, p.batch, p.len_k, p.heads_kv, p.dim_v)};
  tensors.out = view_of(out, p.batch, p.len_q, p.heads_q, p.dim_v);
  tensors.dout = view_of(dout, p.batch, p.len_q, p.heads_q, p.dim_v);
  const BackwardValues values = evaluate_plain(p, tensors, every_row(p), variant_);
  return {matrix_of(values.dq, p.batch, p.len_q, p.heads_q), matrix_of(values.dk, p.batch, p.len_k, p.heads_kv),
          matrix_of(values.dv, p.batch, p.len_k, p.heads_kv)};
}

}  // namespace fovea::verification

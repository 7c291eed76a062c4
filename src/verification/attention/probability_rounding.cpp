// P of a row in double precision, and the sums that bound the error of rounding it.
#include "verification/attention/probability_rounding.h"

#include <algorithm>
#include <cmath>

#include "attention/reference/head.h"
#include "core/float16.h"

namespace fovea::verification {
namespace {

// Up to five keys, all roundings at their worst are within what the measured error allows: docs/numerics.md.
constexpr std::size_t kFewKeys = 5;

double element(const TensorView& view, std::int64_t batch, std::int64_t head, std::int64_t row, std::int64_t column) {
  const std::int64_t index = batch * view.strides[0] + head * view.strides[1] + row * view.strides[2] + column;
  return core::load_as_float(view.data, view.dtype, index);
}

// The keys that the row sees; empty if they are more than few.
std::vector<std::int64_t> few_keys(const AttentionProblem& p, std::int64_t row) {
  std::vector<std::int64_t> keys;
  for (std::int64_t j = 0; j < p.len_k; ++j) {
    if (!reference::visible(p, row, j)) continue;
    if (keys.size() == kFewKeys) return {};
    keys.push_back(j);
  }
  return keys;
}

std::vector<double> probabilities(const AttentionProblem& p, const ForwardTensors& t, const RowIndex& row,
                                  std::int64_t key_head, const std::vector<std::int64_t>& keys) {
  std::vector<double> values;
  for (const std::int64_t j : keys) {
    double score = 0;
    for (std::int64_t c = 0; c < p.dim_qk; ++c)
      score += element(t.q, row.batch, row.head, row.index, c) * element(t.k, row.batch, key_head, j, c);
    values.push_back(p.scale * score);
  }
  const double largest = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (double& value : values) sum += value = std::exp(value - largest);
  for (double& value : values) value /= sum;
  return values;
}

double unit_roundoff(DType type) { return half_ulp(type, 1.0); }

}  // namespace

std::vector<double> errors_of_one_rounding(const AttentionProblem& p, const ForwardTensors& t, const RowValues& out) {
  std::vector<double> errors(out.rows.size(), 0.0);
  if (p.dtype == DType::fp32) return errors;
  for (std::size_t n = 0; n < out.rows.size(); ++n) {
    const RowIndex& row = out.rows[n];
    const std::vector<std::int64_t> keys = few_keys(p, row.index);
    if (keys.size() < 2) continue;  // P of a single key is 1, which every type holds
    const std::int64_t key_head = row.head / (p.heads_q / p.heads_kv);
    const std::vector<double> probability = probabilities(p, t, row, key_head, keys);
    const double* const result = out.values.data() + n * static_cast<std::size_t>(out.columns);
    double rounded_after = 0, rounded_before = 0, size = 0;
    for (std::size_t k = 0; k < keys.size(); ++k) {
      double value = 0, beyond = 0;
      for (std::int64_t c = 0; c < out.columns; ++c) {
        const double v = element(t.v, row.batch, key_head, keys[k], c);
        value += v * v;
        beyond += (v - result[c]) * (v - result[c]);
      }
      rounded_after += probability[k] * std::sqrt(value);
      rounded_before += probability[k] * std::sqrt(beyond);
    }
    for (std::int64_t c = 0; c < out.columns; ++c) size += result[c] * result[c];
    const double bound = unit_roundoff(p.dtype) * std::max(rounded_after, rounded_before) +
                         unit_roundoff(p.result_dtype) * std::sqrt(size);
    if (std::isfinite(bound)) errors[n] = bound;
  }
  return errors;
}

}  // namespace fovea::verification

// Norms of rows, the largest key that a row sees, and the rows and keys that a sample leaves out.
#include "verification/attention/score_sizes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "attention/reference/head.h"
#include "core/float16.h"

namespace fovea::verification {
namespace {

double norm_of(const TensorView& view, std::int64_t batch, std::int64_t head, std::int64_t row) {
  const std::int64_t first = batch * view.strides[0] + head * view.strides[1] + row * view.strides[2];
  double sum = 0;
  for (std::int64_t c = 0; c < view.sizes[3]; ++c) {
    const double value = core::load_as_float(view.data, view.dtype, first + c);
    sum += value * value;
  }
  return std::sqrt(sum);
}

std::vector<double> norms_of(const TensorView& view, std::int64_t batch, std::int64_t head) {
  std::vector<double> norms;
  for (std::int64_t row = 0; row < view.sizes[2]; ++row) norms.push_back(norm_of(view, batch, head, row));
  return norms;
}

}  // namespace

ScoreSizes::ScoreSizes(const AttentionProblem& p, const TensorView& q, const TensorView& k, std::int64_t batch,
                       std::int64_t head)
    : problem_(p), queries_(norms_of(q, batch, head)), keys_(norms_of(k, batch, head / (p.heads_q / p.heads_kv))) {
  for (double& norm : queries_) norm *= std::abs(p.scale);
  for (const double norm : keys_) largest_key_ = std::max(largest_key_, norm);  // skips NaN
}

bool ScoreSizes::reaches(std::int64_t row, double limit) const {
  const double query = queries_[static_cast<std::size_t>(row)];
  if (!(query * largest_key_ >= limit)) return false;
  double largest = 0;
  for (std::size_t j = 0; j < keys_.size(); ++j) {
    if (keys_[j] > largest && reference::visible(problem_, row, static_cast<std::int64_t>(j))) largest = keys_[j];
  }
  const double size = query * largest;
  return std::isfinite(size) && size >= limit;
}

Sample known_to_backward(const AttentionProblem& p, const BackwardTensors& t, Sample sample) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<bool>> heads;  // true: P is unknown in this row
  const auto unknown_of = [&](std::int64_t batch, std::int64_t head) -> const std::vector<bool>& {
    std::vector<bool>& unknown = heads[{batch, head}];
    if (!unknown.empty()) return unknown;
    const ScoreSizes sizes(p, t.q, t.k, batch, head);
    for (std::int64_t i = 0; i < p.len_q; ++i) unknown.push_back(sizes.reaches(i, kLastKnownScore));
    return unknown;
  };
  std::erase_if(sample.queries, [&](const RowIndex& row) {
    return unknown_of(row.batch, row.head)[static_cast<std::size_t>(row.index)];
  });
  const std::int64_t group = p.heads_q == 0 ? 0 : p.heads_q / p.heads_kv;
  std::erase_if(sample.keys, [&](const RowIndex& key) {
    for (std::int64_t h = key.head * group; h < (key.head + 1) * group; ++h) {
      const std::vector<bool>& unknown = unknown_of(key.batch, h);
      for (std::int64_t i = 0; i < p.len_q; ++i) {
        if (unknown[static_cast<std::size_t>(i)] && reference::visible(p, i, key.index)) return true;
      }
    }
    return false;
  });
  return sample;
}

}  // namespace fovea::verification

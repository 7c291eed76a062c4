// Norms of rows, the largest of the keys seen so far, and who is left out by them.
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

// The last row of a head whose scores are finite and beyond what is known; -1 if none.
std::int64_t last_unknown(const std::vector<double>& sizes) {
  auto row = static_cast<std::int64_t>(sizes.size()) - 1;
  const auto unknown = [&](std::int64_t i) {
    const double size = sizes[static_cast<std::size_t>(i)];
    return std::isfinite(size) && size >= kLastKnownScore;
  };
  while (row >= 0 && !unknown(row)) --row;
  return row;
}

}  // namespace

std::vector<double> score_sizes(const AttentionProblem& p, const TensorView& q, const TensorView& k, std::int64_t batch,
                                std::int64_t head) {
  std::vector<double> sizes(static_cast<std::size_t>(p.len_q));
  const std::int64_t key_head = head / (p.heads_q / p.heads_kv);
  double largest = 0;
  std::int64_t j = 0;
  for (std::int64_t i = 0; i < p.len_q; ++i) {
    // No mask hides from a later row what an earlier one sees.
    while (j < p.len_k && reference::visible(p, i, j)) largest = std::max(largest, norm_of(k, batch, key_head, j++));
    sizes[static_cast<std::size_t>(i)] = std::abs(p.scale) * norm_of(q, batch, head, i) * largest;
  }
  return sizes;
}

Sample known_to_backward(const AttentionProblem& p, const BackwardTensors& t, Sample sample) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<double>> heads;
  const auto sizes_of = [&](std::int64_t batch, std::int64_t head) -> const std::vector<double>& {
    std::vector<double>& sizes = heads[{batch, head}];
    if (sizes.empty()) sizes = score_sizes(p, t.q, t.k, batch, head);
    return sizes;
  };
  std::erase_if(sample.queries, [&](const RowIndex& row) {
    const double size = sizes_of(row.batch, row.head)[static_cast<std::size_t>(row.index)];
    return std::isfinite(size) && size >= kLastKnownScore;
  });
  const std::int64_t group = p.heads_q == 0 ? 0 : p.heads_q / p.heads_kv;
  std::erase_if(sample.keys, [&](const RowIndex& key) {
    for (std::int64_t h = key.head * group; h < (key.head + 1) * group; ++h) {
      const std::int64_t row = last_unknown(sizes_of(key.batch, h));
      if (row >= 0 && reference::visible(p, row, key.index)) return true;
    }
    return false;
  });
  return sample;
}

}  // namespace fovea::verification

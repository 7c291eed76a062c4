// Makes dense copies of a problem's heads, with every element moved at random.
#include "verification/attention/companion.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/float16.h"
#include "core/random.h"
#include "verification/attention/evaluation.h"

namespace fovea::verification {
namespace {

AttentionProblem companion_of(AttentionProblem problem, Keeps keeps) {
  if (keeps.shape) return problem;
  problem.mask = Mask::none;
  if (!keeps.len_k) problem.len_k = std::max(problem.len_k, kLeastKeysOfCompanions);
  problem.batch = 1;
  problem.heads_q /= problem.heads_kv;
  problem.heads_kv = 1;
  return problem;
}

}  // namespace

Companion::Companion(const AttentionProblem& problem, const ForwardTensors& tensors, std::uint64_t number, Keeps keeps)
    : number_(number),
      keeps_(keeps),
      batch_(keeps.shape ? 0 : static_cast<std::int64_t>(number) / problem.heads_kv % problem.batch),
      key_head_(keeps.shape ? 0 : static_cast<std::int64_t>(number) % problem.heads_kv),
      problem_(companion_of(problem, keeps)) {
  const double reach = keeps.scores ? 0.0 : 1.0;
  forward_.q = moved(tensors.q, problem_.heads_q, problem_.len_q, reach);
  forward_.k = moved(tensors.k, problem_.heads_kv, problem_.len_k, reach);
  forward_.v = moved(tensors.v, problem_.heads_kv, problem_.len_k);
}

Companion::Companion(const AttentionProblem& problem, const BackwardTensors& tensors, std::uint64_t number, Keeps keeps)
    : Companion(problem, ForwardTensors{.q = tensors.q, .k = tensors.k, .v = tensors.v}, number, keeps) {
  backward_.q = forward_.q;
  backward_.k = forward_.k;
  backward_.v = forward_.v;
  backward_.dout = moved(tensors.dout, problem_.heads_q, problem_.len_q);
  if (!tensors.lse) return;
  const Sample all = sample_of(problem_, 0);
  ForwardValues values = evaluate_reference(problem_, forward_, all);
  if (keeps.shape && problem_.dtype == DType::fp32) {
    const std::uint64_t role = memory_.size();
    for (std::size_t n = 0; n < values.lse.values.size(); ++n) values.lse.values[n] += eighth(role, n);
  }
  const Sizes rows{problem_.batch, problem_.heads_q, problem_.len_q, 1};
  backward_.lse = dense(rows, DType::fp32, values.lse.values);
  const DType type = tensors.out ? tensors.out.dtype : DType::fp32;
  backward_.out = dense({problem_.batch, problem_.heads_q, problem_.len_q, problem_.dim_v}, type, values.out.values);
  if (!tensors.delta) return;
  const RowValues dout = read_rows(backward_.dout, all.queries);
  std::vector<double> delta(values.lse.values.size(), 0.0);
  for (std::size_t n = 0; n < values.out.values.size(); ++n)
    delta[n / static_cast<std::size_t>(problem_.dim_v)] += dout.values[n] * values.out.values[n];
  backward_.delta = dense(rows, DType::fp32, delta);
}

// Random in [-1/8, 1/8).
double Companion::eighth(std::uint64_t role, std::uint64_t position) const {
  return static_cast<double>(core::philox(number_, role, position)[0] >> 8) * 0x1p-26 - 0.125;
}

TensorView Companion::moved(const TensorView& view, std::int64_t heads, std::int64_t rows, double reach) {
  constexpr std::int64_t kRepeatedRows = std::int64_t{1} << 48;  // beyond every position in a tensor
  const bool by_value = keeps_.shape && view.dtype == DType::fp32;
  std::vector<double> values;
  std::vector<std::uint64_t> marks;  // elements with the same mark are moved by the same part
  const auto count = static_cast<std::size_t>(problem_.batch * heads * rows * view.sizes[3]);
  values.reserve(count);
  marks.reserve(count);
  double sum = 0, finite = 0;
  for (std::int64_t b = batch_; b < batch_ + problem_.batch; ++b) {
    for (std::int64_t h = key_head_ * heads; h < (key_head_ + 1) * heads; ++h) {
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t row = b * view.strides[0] + h * view.strides[1] + i % view.sizes[2] * view.strides[2];
        for (std::int64_t c = 0; c < view.sizes[3]; ++c) {
          values.push_back(core::load_as_float(view.data, view.dtype, row + c));
          marks.push_back(by_value ? std::bit_cast<std::uint64_t>(values.back())
                                   : static_cast<std::uint64_t>(i / view.sizes[2] * kRepeatedRows + row + c));
          if (!std::isfinite(values.back())) continue;
          sum += std::abs(values.back());
          finite += 1;
        }
      }
    }
  }
  const double typical = sum > 0 ? sum / finite : 1.0;
  const std::uint64_t role = memory_.size();
  for (std::size_t n = 0; n < values.size(); ++n) {
    const double part = reach * eighth(role, marks[n]);
    values[n] = std::isfinite(values[n]) ? values[n] + part * (values[n] + typical) : typical;
  }
  return dense({problem_.batch, heads, rows, view.sizes[3]}, view.dtype, values);
}

TensorView Companion::dense(const Sizes& sizes, DType dtype, const std::vector<double>& values) {
  std::vector<float>& memory = memory_.emplace_back(values.size() + 1);
  for (std::size_t n = 0; n < values.size(); ++n)
    core::store_from_float(memory.data(), dtype, static_cast<std::int64_t>(n), static_cast<float>(values[n]));
  return contiguous(memory.data(), dtype, sizes);
}

}  // namespace fovea::verification

// Random tensors for tests of Linear, in any type and memory order, and the check of a result against the reference.
#pragma once

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/float16.h"
#include "fovea/linear.h"
#include "linear/reference.h"
#include "verification/comparer.h"

namespace fovea::linear {

// How [batch, heads, len, dim] lies in memory; gaps hold NaN.
enum class Order { dense, by_heads, gaps };

class TestTensor {
 public:
  TestTensor(const Sizes& sizes, DType dtype, Order order, unsigned seed, float poison = NAN) {
    const std::int64_t gap = order == Order::gaps ? 3 : 0;
    const std::int64_t row = sizes[1] * sizes[3] + gap;
    view.sizes = sizes;
    view.dtype = dtype;
    view.strides = {sizes[2] * row + gap, sizes[3], row, 1};
    if (order == Order::by_heads) view.strides = dense_strides(sizes);
    count_ = sizes[0] * std::max(view.strides[0], sizes[1] * view.strides[1]) + 1;
    memory_.assign(static_cast<std::size_t>(count_), 0.0f);
    for (std::int64_t i = 0; i < count_; ++i) core::store_from_float(memory_.data(), dtype, i, poison);
    view.data = memory_.data();
    if (seed == 0) return;
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for_each([&](std::int64_t index) { core::store_from_float(memory_.data(), dtype, index, normal(random)); });
  }
  TestTensor(const TestTensor&) = delete;
  TestTensor& operator=(const TestTensor&) = delete;

  void for_each(const std::function<void(std::int64_t)>& visit) const {
    const auto& [b, h, l, d] = view.sizes;
    for (std::int64_t i = 0; i < b * h * l * d; ++i) {
      visit(i / (h * l * d) * view.strides[0] + i / (l * d) % h * view.strides[1] + i / d % l * view.strides[2] +
            i % d * view.strides[3]);
    }
  }
  float at(std::int64_t index) const { return core::load_as_float(memory_.data(), view.dtype, index); }
  void set(std::int64_t index, float value) { core::store_from_float(memory_.data(), view.dtype, index, value); }
  std::vector<float> all() const {
    std::vector<float> values;
    for_each([&](std::int64_t index) { values.push_back(at(index)); });
    return values;
  }
  std::int64_t bytes() const { return count_ * size_of(view.dtype); }
  // Elements outside the view, which no call may touch.
  std::int64_t gaps_written() const {
    std::vector<bool> inside(static_cast<std::size_t>(count_));
    for_each([&](std::int64_t index) { inside[static_cast<std::size_t>(index)] = true; });
    std::int64_t written = 0;
    for (std::int64_t i = 0; i < count_; ++i) written += !inside[static_cast<std::size_t>(i)] && !std::isnan(at(i));
    return written;
  }

  MutableTensorView view{};

 private:
  std::int64_t count_ = 0;
  std::vector<float> memory_;
};

// Row r of a [batch, heads, len, dim] tensor is (r / len, r % len); its columns are (head, dim).
inline verification::RowValues values_of(const TensorView& t) {
  verification::RowValues result;
  result.columns = t.sizes[1] * t.sizes[3];
  for (std::int64_t row = 0; row < t.sizes[0] * t.sizes[2]; ++row) {
    result.rows.push_back({row / t.sizes[2], 0, row % t.sizes[2]});
    for (std::int64_t c = 0; c < result.columns; ++c)
      result.values.push_back(core::load_as_float(t.data, t.dtype,
                                                  row / t.sizes[2] * t.strides[0] + c / t.sizes[3] * t.strides[1] +
                                                      row % t.sizes[2] * t.strides[2] + c % t.sizes[3] * t.strides[3]));
  }
  return result;
}

// The same of the reference or the plain evaluation, whose rows `find` writes.
inline verification::RowValues found(const TensorView& like, const std::function<void(std::int64_t, double*)>& find) {
  verification::RowValues result;
  result.columns = like.sizes[1] * like.sizes[3];
  const std::int64_t rows = like.sizes[0] * like.sizes[2];
  result.values.resize(static_cast<std::size_t>(rows * result.columns));
  for (std::int64_t row = 0; row < rows; ++row) {
    result.rows.push_back({row / like.sizes[2], 0, row % like.sizes[2]});
    find(row, result.values.data() + row * result.columns);
  }
  return result;
}

// What a result must be: within twice the error of the plain evaluation in the same precision.
struct Expected {
  std::string name;
  TensorView like;
  verification::RowValues truth;
  verification::Bound bound;

  using Find = std::function<void(std::int64_t, double*)>;
  Expected(std::string tensor, const TensorView& t, const Find& reference, const Find& plain)
      : name(std::move(tensor)), like(t), truth(found(t, reference)) {
    bound.plain = verification::error_of(found(t, plain), truth);
    bound.stored = t.dtype;
  }

  // What is wrong; empty if nothing is.
  std::string fault_of(const TensorView& got) const {
    const verification::TensorError error = verification::compare(name, values_of(got), truth, bound);
    if (error.ok) return {};
    return name + ": " + error.detail + ", " + std::to_string(error.ratio_to_plain) + " of the plain error";
  }
};

inline Expected expected_y(const LinearForwardTensors& t) {
  return {"y", t.y, [&](std::int64_t row, double* to) { reference_y(t, row, to); },
          [&](std::int64_t row, double* to) { plain_y(t, row, to); }};
}

inline Expected expected_dx(const LinearBackwardTensors& t) {
  return {"dx", t.dx, [&](std::int64_t row, double* to) { reference_dx(t, row, to); },
          [&](std::int64_t row, double* to) { plain_dx(t, row, to); }};
}

inline Expected expected_dweight(const LinearBackwardTensors& t) {
  return {"dweight", t.dweight, [&](std::int64_t row, double* to) { reference_dweight(t, row, to); },
          [&](std::int64_t row, double* to) { plain_dweight(t, row, to); }};
}

inline Expected expected_dbias(const LinearBackwardTensors& t) {
  return {"dbias", t.dbias, [&](std::int64_t, double* to) { reference_dbias(t, to); },
          [&](std::int64_t, double* to) { plain_dbias(t, to); }};
}

}  // namespace fovea::linear

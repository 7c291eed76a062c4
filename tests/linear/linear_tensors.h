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
#include "verification/linear/check.h"

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

// What is wrong with results; empty if nothing is.
using Results = std::vector<std::pair<std::string, MutableTensorView>>;
inline std::string fault_of(const verification::Expectation& expected, const Results& results) {
  verification::TensorSet set;
  for (const auto& [name, view] : results) set.add(name, view);
  return verification::compare(expected, set).reason();
}

inline Results gradients_of(const LinearBackwardTensors& t) {
  return {{"dx", t.dx}, {"dweight", t.dweight}, {"dbias", t.dbias}};
}

}  // namespace fovea::linear

// What is done to the rows of a tensor [batch, heads, len, dim] between projections and attention: RMS norm, then
// rotary embedding. The same for all devices.
#pragma once

#include <cstdint>
#include <optional>

#include "fovea/rotary.h"
#include "fovea/tensor.h"

namespace fovea::heads {

// Columns [first_column, first_column + columns) are rotated; `columns` is even. Row i has position first_position + i.
struct Rotation {
  double theta = 10000.0;
  RotaryPairs pairs = RotaryPairs::interleaved;
  std::int64_t first_column = 0, columns = 0;
  std::int64_t first_position = 0;
  bool operator==(const Rotation&) const = default;
};

// `to` is `from`, normalised and rotated; it may be the same memory, with the same strides. Sums are fp32.
struct RowPass {
  TensorView from = {};  // a head stride of 0: all heads of `to` read one head
  MutableTensorView to = {};
  TensorView weight = {};  // [1, 1, 1, dim]: row = row / sqrt(mean(row^2) + epsilon) * weight; absent: not normalised
  double epsilon = 0;
  std::optional<Rotation> rotation = {};
};

// The gradient of `from` from the gradient of `to`. `dx` may be `dy`. If dx has one head and dy several, dx is the sum
// over the heads, which is rounded once; such rows are not normalised.
struct RowPassBackward {
  TensorView x = {};  // what forward read; only with a weight
  TensorView dy = {};
  MutableTensorView dx = {};
  TensorView weight = {};
  double epsilon = 0;
  std::optional<Rotation> rotation = {};
  float* partial = nullptr;  // sums of the weight's gradient over some rows each; null: not wanted
  bool accumulate = false;   // add to dx, which is not dy then
};

// The gradient of the weight: the sum of the partial sums, in order; or that added to an fp32 `dweight`.
struct WeightGradient {
  const float* partial = nullptr;  // [rows, dim]
  std::int64_t rows = 0;
  MutableTensorView dweight = {};  // [1, 1, 1, dim]
  bool accumulate = false;
};

}  // namespace fovea::heads

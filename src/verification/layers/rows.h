// RMS norm and rotary embedding of the rows of heads, from their formulas, and their derivatives.
#pragma once

#include <cstdint>
#include <optional>

#include "fovea/layers.h"
#include "verification/layers/matrix.h"

namespace fovea::verification {

// The columns of each head that are rotated, and the position of the first row of each batch element.
struct Turn {
  double theta = 10000;
  RotaryPairs pairs = RotaryPairs::interleaved;
  std::int64_t first_column = 0, columns = 0, first_position = 0;
};

// A matrix has rows (batch, len) and columns (head, dim).
struct RowTransform {
  std::int64_t heads = 1, len = 1;
  Matrix<float> weight = {};  // one row of dim columns; empty: not normalised
  double epsilon = 0;
  std::optional<Turn> turn = {};
};

// Each head of each row, normalised, then turned. Sums have the type of the numbers.
template <class Number>
Matrix<Number> transformed(const RowTransform& transform, Matrix<Number> rows);

// The gradient of the rows from that of the transformed ones; and for each head of each row a row of the products whose
// sums over all rows are the gradient of the weight (empty without a weight).
template <class Number>
struct RowGradient {
  Matrix<Number> rows, products;
};
template <class Number>
RowGradient<Number> transform_gradient(const RowTransform& transform, const Matrix<Number>& rows,
                                       Matrix<Number> gradients);

}  // namespace fovea::verification

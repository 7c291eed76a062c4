// The reference for Linear: every result as sums of products of single elements.
#pragma once

#include <cstdint>
#include <functional>

#include "fovea/linear.h"

namespace fovea::linear {

// result[row][column] = sum over term of a(row, term) b(column, term), + bias(column) if there is one. Rows of y and dx
// are (batch, len), of dweight the columns of y; dbias has one.
struct SumsOfProducts {
  std::int64_t rows = 0, columns = 0, terms = 0;
  std::function<float(std::int64_t row, std::int64_t term)> a;
  std::function<float(std::int64_t column, std::int64_t term)> b;
  std::function<float(std::int64_t column)> bias = {};
  DType operands = DType::fp32;
};
SumsOfProducts sums_of_y(const LinearForwardTensors& tensors);
SumsOfProducts sums_of_dx(const LinearBackwardTensors& tensors);
SumsOfProducts sums_of_dweight(const LinearBackwardTensors& tensors);
SumsOfProducts sums_of_dbias(const LinearBackwardTensors& tensors);

}  // namespace fovea::linear

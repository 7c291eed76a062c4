// Written from the formulas of linear.h, element by element; what computes Linear shares nothing with it.
#include "linear/reference.h"

#include "core/float16.h"

namespace fovea::linear {
namespace {

std::int64_t columns_of(const TensorView& t) { return t.sizes[1] * t.sizes[3]; }
std::int64_t rows_of(const TensorView& t) { return t.sizes[0] * t.sizes[2]; }

// The element in row (batch, len) and column (head, dim).
float at(const TensorView& t, std::int64_t row, std::int64_t column) {
  const std::int64_t b = row / t.sizes[2], l = row % t.sizes[2], h = column / t.sizes[3], d = column % t.sizes[3];
  return core::load_as_float(t.data, t.dtype, b * t.strides[0] + h * t.strides[1] + l * t.strides[2] + d);
}

}  // namespace

SumsOfProducts sums_of_y(const LinearForwardTensors& t) {
  SumsOfProducts sums{rows_of(t.y), columns_of(t.y), columns_of(t.x),
                      [x = t.x](std::int64_t row, std::int64_t term) { return at(x, row, term); },
                      [weight = t.weight](std::int64_t column, std::int64_t term) { return at(weight, column, term); }};
  sums.operands = t.x.dtype;
  if (t.bias) sums.bias = [bias = t.bias](std::int64_t column) { return at(bias, 0, column); };
  return sums;
}

SumsOfProducts sums_of_dx(const LinearBackwardTensors& t) {
  return {rows_of(t.dx),
          columns_of(t.dx),
          columns_of(t.dy),
          [dy = t.dy](std::int64_t row, std::int64_t term) { return at(dy, row, term); },
          [weight = t.weight](std::int64_t column, std::int64_t term) { return at(weight, term, column); },
          {},
          t.dy.dtype};
}

SumsOfProducts sums_of_dweight(const LinearBackwardTensors& t) {
  return {columns_of(t.dy),
          columns_of(t.x),
          rows_of(t.dy),
          [dy = t.dy](std::int64_t row, std::int64_t term) { return at(dy, term, row); },
          [x = t.x](std::int64_t column, std::int64_t term) { return at(x, term, column); },
          {},
          t.dy.dtype};
}

SumsOfProducts sums_of_dbias(const LinearBackwardTensors& t) {
  return {1,
          columns_of(t.dy),
          rows_of(t.dy),
          [](std::int64_t, std::int64_t) { return 1.0f; },
          [dy = t.dy](std::int64_t column, std::int64_t term) { return at(dy, term, column); },
          {},
          t.dy.dtype};
}

}  // namespace fovea::linear

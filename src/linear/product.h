// One batched matrix product: what Linear and the baselines ask of a matrix library, on any device.
#pragma once

#include <cstdint>

#include "fovea/tensor.h"

namespace fovea::linear {

// Matrices of one shape, `batch_stride` elements from one to the next (0: one matrix for all products). Each row is
// contiguous in memory.
struct MatrixBatch {
  const void* data = nullptr;
  DType dtype = DType::fp32;
  std::int64_t row_stride = 0, batch_stride = 0;
  bool transposed = false;  // the product's operand is the transpose of the matrix in memory

  // The matrix that begins at an element, counted as in memory.
  MatrixBatch from(std::int64_t row, std::int64_t column) const {
    MatrixBatch rest = *this;
    rest.data = static_cast<const char*>(data) + (row * row_stride + column) * size_of(dtype);
    return rest;
  }
  // The matrix that begins at an element, counted as in the operand.
  MatrixBatch within(std::int64_t row, std::int64_t column) const {
    return transposed ? from(column, row) : from(row, column);
  }
  MatrixBatch transpose() const {
    MatrixBatch other = *this;
    other.transposed = !transposed;
    return other;
  }
  MatrixBatch number(std::int64_t index) const {
    MatrixBatch one = *this;
    one.data = static_cast<const char*>(data) + index * batch_stride * size_of(dtype);
    return one;
  }
};

// c[m, n] = alpha * a[m, k] b[k, n] + beta * c + bias[n], `count` times, row-major. Sums are fp32, and fp32 is true
// fp32. a and b have one type; c, never transposed, has it too or is fp32. beta = 0 does not read c. Any
// stride and alignment; sizes are at least 1, since libraries take no empty matrix.
struct BatchedProduct {
  std::int64_t count = 1, m = 0, n = 0, k = 0;
  float alpha = 1.0f;
  MatrixBatch a, b;
  float beta = 0.0f;
  MatrixBatch c;
  MatrixBatch bias = {};  // a row for each product, of the type of a and b; null: none
};

// c as memory to write.
inline void* target_of(const MatrixBatch& c) { return const_cast<void*>(c.data); }

}  // namespace fovea::linear

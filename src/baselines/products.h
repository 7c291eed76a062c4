// Matrix products by a library, each on the calling thread alone: the baselines cut the work themselves.
#pragma once

#include <cstdint>
#include <string>

#include "fovea/tensor.h"

namespace fovea::baselines {

// A matrix in memory, fp32 or 16-bit.
struct Factor {
  const void* data;
  DType dtype;
  std::int64_t stride;      // elements from one row to the next
  bool transposed = false;  // the product takes the transpose of what lies in memory

  // From an element of memory on.
  Factor from(std::int64_t row, std::int64_t column) const {
    return {static_cast<const char*>(data) + (row * stride + column) * size_of(dtype), dtype, stride, transposed};
  }
  Factor transpose() const { return {data, dtype, stride, !transposed}; }
};

// c[m, n] = alpha * a[m, k] b[k, n] + beta * c. Sums and c are fp32; beta = 0 does not read c.
// Sizes of 1 and more, below 2^31.
struct Product {
  std::int64_t m, n, k;
  float alpha;
  Factor a, b;
  float beta;
  float* c;
  std::int64_t c_stride;
};
void multiply(const Product& product);
std::string products_unavailable();  // empty, or why multiply() is refused

// Largest size or stride that the libraries take.
inline constexpr std::int64_t kLargestProductSize = 0x7fffffff;

}  // namespace fovea::baselines

// Matrix products by a library, each on the calling thread alone: the baselines cut the work themselves.
#pragma once

#include <cstdint>

#include "fovea/tensor.h"

namespace fovea::baselines {

struct Factor {
  const float* data;
  std::int64_t stride;      // elements from one row to the next
  bool transposed = false;  // the product takes the transpose of what lies in memory
};

// c[m, n] = alpha * a[m, k] b[k, n] + beta * c; beta = 0 does not read c. Sizes of 1 and more, below 2^31.
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const Factor& a, const Factor& b, float beta,
              float* c, std::int64_t c_stride);

// Largest size or stride that the libraries take.
inline constexpr std::int64_t kLargestProductSize = 0x7fffffff;

}  // namespace fovea::baselines

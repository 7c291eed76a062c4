// The columns that a band shows a row.
#pragma once

#include "cuda/reference/pairs.h"
#include "cuda/reference/sums.cuh"

namespace fovea::cuda::reference {

__device__ inline IndexRange seen_by(std::int64_t row, const Band& band, std::int64_t columns) {
  const std::int64_t first = row + band.shift - band.left, end = row + band.shift + band.right + 1;
  const std::int64_t begin = first < 0 ? 0 : first;
  const std::int64_t last = end > columns ? columns : end;
  return begin < last ? IndexRange{begin, last} : IndexRange{0, 0};
}

}  // namespace fovea::cuda::reference

// The arguments of the gradient of short rows of scores, and its kernels.
#pragma once

#include "baselines/cuda/short_rows.h"

namespace fovea::cuda::baselines {

// Step::softmax_gradient of dP and P that are read for the last time. P (0 for masked keys) and the result have 16
// bits. No two of the matrices share memory.
struct ShortGradient {
  ShortRows rows;
  float factor;
  ConstShortMatrix dp, probabilities;
  ShortMatrix to;
  const float* delta;  // as in RowPass
  unsigned delta_stride;
};

const void* short_gradient_kernel(ElementKind element);

}  // namespace fovea::cuda::baselines

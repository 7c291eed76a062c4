// What the host hands to the gradient of short rows of scores, and where its kernels are.
#pragma once

#include "baselines/cuda/short_rows.h"

namespace fovea::cuda::baselines {

// Step::differentiate of gradients and weights that are read for the last time; the weights, 0 where they are hidden,
// and the result have 16 bits, and no two lie in one place.
struct ShortGradient {
  ShortRows rows;
  float factor;
  ShortMatrix gradients, weights, to;
  const float* delta;  // as RowPass has it
  unsigned delta_head;
};

const void* short_gradient_kernel(ElementKind element);

}  // namespace fovea::cuda::baselines

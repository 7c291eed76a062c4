// What the host hands to the softmax of short rows, and where its kernels are.
#pragma once

#include "baselines/cuda/short_rows.h"

namespace fovea::cuda::baselines {

// Step::softmax of scores that are read for the last time, and 16-bit probabilities elsewhere.
struct ShortSoftmax {
  ShortRows rows;
  float abs_scale, sign;  // as RowPass has them
  ShortMatrix scores, to;
  ShortMatrix lse;  // of one element a row; data may be null
};

const void* short_softmax_kernel(ElementKind to);

}  // namespace fovea::cuda::baselines

// The arguments of the softmax of short rows, and its kernels.
#pragma once

#include "baselines/cuda/short_rows.h"

namespace fovea::cuda::baselines {

// Step::softmax of scores that are read for the last time. The 16-bit probabilities are not in place.
struct ShortSoftmax {
  ShortRows rows;
  float abs_scale, sign;  // as in RowPass
  ConstShortMatrix scores;
  ShortMatrix to;
  ShortMatrix lse;  // one element per row; data may be null
};

const void* short_softmax_kernel(ElementKind to);

}  // namespace fovea::cuda::baselines

// The times of the backward kernel's tiles on one H200. They are fitted to the first 2,308 backward calls of up to 128
// columns in results/h200/hopper_sweep.csv.xz (docs/kernels/sm90_backward_notebook.md, step 5).
#pragma once

#include "cuda/attention/sm90/backward_parameters.h"

namespace fovea::cuda::sm90 {

constexpr BackwardTimes kBackwardTimes64{.step = 2.64e-6, .tile = 4.3e-6};
constexpr BackwardTimes kBackwardTimes128{.step = 2.24e-6, .tile = 6.0e-6};

}  // namespace fovea::cuda::sm90

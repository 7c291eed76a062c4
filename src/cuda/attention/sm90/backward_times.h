// The times of the backward kernel's tiles, fitted to the dense cells of step 3 in
// docs/kernels/sm90_backward_notebook.md, on one H100.
#pragma once

#include "cuda/attention/sm90/backward_parameters.h"

namespace fovea::cuda::sm90 {

constexpr BackwardTimes kBackwardTimes64{.step = 2.65e-6, .tile = 5.2e-6};
constexpr BackwardTimes kBackwardTimes128{.step = 2.42e-6, .tile = 6.7e-6};

}  // namespace fovea::cuda::sm90

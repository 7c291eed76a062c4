// The times of the backward kernel's tiles, fitted to the dense cells of docs/kernels/sm90_backward_notebook.md on one
// H100.
#pragma once

#include "cuda/attention/sm90/backward_parameters.h"

namespace fovea::cuda::sm90 {

constexpr BackwardTimes kBackwardTimes64{.step = 2.6e-6, .tile = 8.0e-6};
constexpr BackwardTimes kBackwardTimes128{.step = 2.5e-6, .tile = 8.0e-6};

}  // namespace fovea::cuda::sm90

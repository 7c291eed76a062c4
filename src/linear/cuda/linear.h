// The implementations of Linear on NVIDIA GPUs; none in builds without CUDA.
#pragma once

#include <vector>

#include "linear/implementation.h"

namespace fovea::linear {

std::vector<Implementation> cuda_implementations();

}  // namespace fovea::linear

// Linear on NVIDIA GPUs; in builds without CUDA there is nothing.
#pragma once

#include <vector>

#include "linear/implementation.h"

namespace fovea::linear {

std::vector<Implementation> cuda_implementations();

}  // namespace fovea::linear

// The implementation of layers on NVIDIA GPUs; an empty list in builds without CUDA.
#pragma once

#include <vector>

#include "layers/implementation.h"

namespace fovea::layers {

std::vector<Implementation> cuda_implementations();

}  // namespace fovea::layers

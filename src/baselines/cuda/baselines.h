// The baselines on NVIDIA GPUs, with the same names as on the CPU. Empty in a build without CUDA.
#pragma once

#include <span>

#include "attention/implementation.h"

namespace fovea::cuda::baselines {

std::span<const attention::Implementation> implementations();

}  // namespace fovea::cuda::baselines

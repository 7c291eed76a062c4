// The baselines on NVIDIA GPUs, under the names that they have on the CPU. Empty in a build without CUDA.
#pragma once

#include <span>

#include "attention/implementation.h"

namespace fovea::cuda::baselines {

std::span<const attention::Implementation> implementations();

}  // namespace fovea::cuda::baselines

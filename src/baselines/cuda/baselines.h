// The baselines on NVIDIA GPUs, under the names that they have on the CPU. Empty in a build without CUDA.
#pragma once

#include <span>

#include "core/implementation.h"

namespace fovea::cuda::baselines {

std::span<const core::Implementation> implementations();

}  // namespace fovea::cuda::baselines

// The CUDA backend's implementations. No CUDA header here: this file is read by builds without CUDA.
#pragma once

#include <span>

#include "core/implementation.h"

namespace fovea::cuda {

// Empty in a build without CUDA.
std::span<const core::Implementation> implementations();

}  // namespace fovea::cuda

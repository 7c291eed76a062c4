// The CUDA backend's implementations. No CUDA header here: this file is read by builds without CUDA.
#pragma once

#include <span>

#include "attention/implementation.h"

namespace fovea::cuda {

// Empty in a build without CUDA.
std::span<const attention::Implementation> implementations();

}  // namespace fovea::cuda

// Copies of weights on NVIDIA GPUs.
#pragma once

#include <span>

#include "layers/run.h"

namespace fovea::layers {

// One launch on the context's stream, on the current device. At most one copy for each projection.
void copy_weights_on_gpu(std::span<const WeightCopy> copies, const core::RunContext& context);

}  // namespace fovea::layers

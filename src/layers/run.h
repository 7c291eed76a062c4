// Runs a layer's plan: the same sequence of parts on every device.
#pragma once

#include <span>

#include "heads/devices.h"
#include "layers/plan.h"

namespace fovea::layers {

// The rows of a weight, and where they are to lie densely. Both views have the same sizes and type.
struct WeightCopy {
  TensorView from;
  MutableTensorView to;
};

// What a run needs of its device besides the parts.
struct DeviceWork {
  void (*copy_weights)(std::span<const WeightCopy> copies, const core::RunContext& context) = nullptr;
  const heads::Passes& passes;
};

void forward(const Plan& plan, const LayerForwardTensors& tensors, const core::RunContext& context,
             const DeviceWork& device);
void backward(const Plan& plan, const LayerBackwardTensors& tensors, const core::RunContext& context,
              const DeviceWork& device);

}  // namespace fovea::layers

// Runs a layer's plan: the same sequence of parts on every device.
#pragma once

#include "heads/devices.h"
#include "layers/plan.h"

namespace fovea::layers {

// What a run needs of its device besides the parts.
struct DeviceWork {
  // Copies the rows of a weight; both have the same sizes and type.
  void (*copy_rows)(const TensorView& from, const MutableTensorView& to, const core::RunContext& context) = nullptr;
  const heads::Passes& passes;
};

void forward(const Plan& plan, const LayerForwardTensors& tensors, const core::RunContext& context,
             const DeviceWork& device);
void backward(const Plan& plan, const LayerBackwardTensors& tensors, const core::RunContext& context,
              const DeviceWork& device);

}  // namespace fovea::layers

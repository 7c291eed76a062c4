// Runs a layer's plan: the same sequence of parts on every device.
#pragma once

#include "layers/plan.h"

namespace fovea::layers {

// What a run needs of its device besides the parts. Copies the rows of a weight; both have the same sizes and type.
using CopyRows = void (*)(const TensorView& from, const MutableTensorView& to, const core::RunContext& context);

void forward(const Plan& plan, const LayerForwardTensors& tensors, const core::RunContext& context);
void backward(const Plan& plan, const LayerBackwardTensors& tensors, const core::RunContext& context,
              CopyRows copy_rows);

}  // namespace fovea::layers

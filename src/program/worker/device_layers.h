// The expected results of large layers, evaluated on the device that holds the problem.
#pragma once

#include "fovea/tensor.h"
#include "verification/layers/evaluator.h"

namespace fovea::program {

// Uses a GPU for products and attention that are worth the transfers, and the CPU if the GPU's memory is full.
const verification::LayerEvaluator& layer_evaluator(DeviceKind device);

}  // namespace fovea::program

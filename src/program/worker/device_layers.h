// The expected results of large layers, evaluated on the device that holds the problem.
#pragma once

#include <memory>

#include "fovea/tensor.h"
#include "verification/layers/evaluator.h"

namespace fovea::program {

// Uses the first GPU for products and attention of at least so many flops, or the CPU if the GPU's memory is full.
std::unique_ptr<const verification::LayerEvaluator> layer_evaluator_on_gpu(double least_flops);

// On a GPU it uses it for what is worth the transfers.
const verification::LayerEvaluator& layer_evaluator(DeviceKind device);

}  // namespace fovea::program

// The reference for large problems of attention, evaluated on the device that holds the problem.
#pragma once

#include "fovea/tensor.h"
#include "verification/attention/evaluation.h"

namespace fovea::program {

// Uses a GPU's double-precision kernels, or the CPU if the GPU's memory is full. For the CPU it is empty.
verification::ReferenceEvaluator reference_evaluator(DeviceKind device);

}  // namespace fovea::program

// The reference for large problems of attention, evaluated on the device that holds the problem.
#pragma once

#include "fovea/tensor.h"
#include "verification/attention/evaluation.h"

namespace fovea::program {

// On a GPU by its plain double-precision kernels, unless its memory is full: then, and for all other devices, the CPU.
verification::ReferenceEvaluator reference_evaluator(DeviceKind device);

}  // namespace fovea::program

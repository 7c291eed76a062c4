// The definition of attention for large problems, evaluated where the problem is.
#pragma once

#include "fovea/tensor.h"
#include "verification/attention/evaluation.h"

namespace fovea::program {

// On a GPU by its plain double-precision kernels, unless its memory is full: then, and for all other devices, the CPU.
verification::Definition definition_on(DeviceKind device);

}  // namespace fovea::program

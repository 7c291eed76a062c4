// The input families of layers: the common ones, with parameters as they are initialised for training.
#pragma once

#include <vector>

#include "verification/families.h"

namespace fovea::verification {

// Weights are divided by about the square root of their columns, so that activations keep the size of x. nonfinite
// strikes one element of x, x_kv or dy: a NaN in a weight would reach every result.
std::vector<Family> layer_families();

}  // namespace fovea::verification

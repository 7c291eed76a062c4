// The input families of layers: the common ones, with parameters as they are initialised for training.
#pragma once

#include <vector>

#include "verification/families.h"

namespace fovea::verification {

// Weights are divided by about the square root of their columns, so that activations keep the size of x. There is no
// NaN family: a NaN in a weight reaches every result.
std::vector<Family> layer_families();

}  // namespace fovea::verification

// Calls of verification on a GPU: their tensors lie on the host and are carried there and back.
#pragma once

#include "verification/differential.h"

namespace fovea::program {

// Empty for the CPU, where nothing is carried.
verification::Carry carry_to(DeviceKind device);

}  // namespace fovea::program

// Calls of verification on a GPU. Tensors on the host are copied to the device, and results back.
#pragma once

#include "verification/differential.h"

namespace fovea::program {

// Makes the calls of a device; empty for the CPU.
verification::MakeDeviceCall device_calls(DeviceKind device);

}  // namespace fovea::program

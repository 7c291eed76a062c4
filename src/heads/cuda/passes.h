// Row passes on NVIDIA GPUs.
#pragma once

#include "heads/devices.h"

namespace fovea::heads {

// They only enqueue work on the context's stream, on the current device.
const Passes& passes_on_gpu();

}  // namespace fovea::heads

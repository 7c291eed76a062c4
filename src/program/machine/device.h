// Whether the requested device exists.
#pragma once

#include <string>

#include "fovea/tensor.h"

namespace fovea::program {

inline constexpr int kNoDevice = 4;  // exit code

// Why no implementation can run on the device, as several lines for stderr; empty if one can. `instead` is the option
// that requests the CPU.
std::string missing_device(DeviceKind device, const std::string& verb, const std::string& instead = "--device cpu");

}  // namespace fovea::program

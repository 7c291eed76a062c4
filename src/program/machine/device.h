// Whether the device that was asked for is there.
#pragma once

#include <string>

#include "fovea/tensor.h"

namespace fovea::program {

inline constexpr int kNoDevice = 4;  // exit code

// Why none of the implementations can run on the device, as several lines for stderr; empty if one of them can.
// `instead` is what would ask for the CPU.
std::string missing_device(DeviceKind device, const std::string& verb, const std::string& instead = "--device cpu");

}  // namespace fovea::program

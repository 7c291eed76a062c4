// Whether the requested device exists, and its free memory.
#pragma once

#include <cstdint>
#include <string>

#include "fovea/tensor.h"
#include "verification/operation.h"

namespace fovea::program {

inline constexpr int kNoDevice = 4;  // exit code

// Why no implementation of the operation can run on the device, as several lines for stderr; empty if one can, or if
// there is such a device but the operation has no implementation for it. `instead` is the option that requests the CPU.
std::string missing_device(const verification::Operation& operation, DeviceKind device, const std::string& verb,
                           const std::string& instead = "--device cpu");

// Memory that this process may still take: of the machine within its limit of addresses, or of the GPU.
std::int64_t free_bytes(DeviceKind device);

}  // namespace fovea::program

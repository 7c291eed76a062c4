// Properties of the GPUs of this machine, and the clock and power of the first one now.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fovea/tensor.h"

namespace fovea::cuda {

struct DeviceFacts {
  std::string name;
  int major = 0, minor = 0, sm_count = 0;
  std::int64_t memory_bytes = 0, l2_bytes = 0, shared_bytes = 0;  // shared: per thread block
  double max_clock_mhz = 0;
};

// Empty without a driver, without a GPU, and in a build without CUDA.
std::vector<DeviceFacts> device_facts();

// "580.159.04, CUDA 13.0"; empty where that is unknown.
std::string driver_text();

// Upper bound of any kernel, in flops/s: SMs x flops per cycle x highest clock. 0 for an unknown chip.
double datasheet_flops(const DeviceFacts& facts, DType dtype);

// What the driver's management library reports now; empty where it is missing or does not answer.
struct DeviceState {
  std::optional<double> clock_mhz, power_w;
};
DeviceState device_state();

}  // namespace fovea::cuda

// A model's work on an NVIDIA GPU; refused in builds without CUDA.
#pragma once

#include "model/device_work.h"

namespace fovea::model {

// `bytes` of device memory, and pinned memory for a batch of `rows` tokens. Throws Error: unsupported where the device
// is not there, out_of_memory.
std::unique_ptr<DeviceWork> work_on_gpu(Device device, std::int64_t bytes, std::int64_t rows);

}  // namespace fovea::model

// CUDA status codes as fovea::Error, with name and text of the code.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "core/binary_size.h"
#include "core/check.h"

namespace fovea::cuda {

inline std::string text_of(cudaError_t status) {
  return std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status);
}

// Free and total memory of the current device, for messages.
inline std::string free_memory_text() {
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) {
    cudaGetLastError();
    return "an unknown amount free";
  }
  const auto text = [](std::size_t bytes) { return core::binary_size(static_cast<std::int64_t>(bytes)); };
  return text(free) + " free of " + text(total);
}

// `function` is the CUDA function that returned the status.
inline void check(cudaError_t status, std::string_view function) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // so that the next check does not see this failure
  const bool no_memory = status == cudaErrorMemoryAllocation;
  core::fail({.status = no_memory ? Status::out_of_memory : Status::error,
              .call = std::string(function),
              .problem = "a CUDA call failed",
              .got = text_of(status) + (no_memory ? ", " + free_memory_text() : ""),
              .wanted = no_memory ? "enough free memory on the device" : "cudaSuccess"});
}

inline int device_attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace fovea::cuda

// Looks up functions of the CUDA driver. They are faster than the runtime's wrappers.
#pragma once

#include <cuda_runtime_api.h>

namespace fovea::cuda {

// The driver function `name` with its CUDA 12.0 signature; null if the driver lacks it.
template <class Function>
Function driver_function(const char* name) {
  constexpr unsigned kInterface = 12000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &function, kInterface, cudaEnableDefault, &found);
  if (status != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<Function>(function);
}

}  // namespace fovea::cuda

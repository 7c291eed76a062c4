// Functions of the CUDA driver, which are faster than the runtime functions around them.
#pragma once

#include <cuda_runtime_api.h>

namespace fovea::cuda {

// With its interface of CUDA 12.0; null if it cannot be found.
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

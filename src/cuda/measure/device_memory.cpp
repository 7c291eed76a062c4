// Plain allocations, copies on the default stream.
#include "cuda/measure/device_memory.h"

#include <cuda_runtime_api.h>

#include <string>

#include "core/binary_size.h"
#include "core/check.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/workspace_pool.h"

namespace fovea::cuda {

DeviceMemory::DeviceMemory(std::int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<std::size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    core::fail({.status = Status::out_of_memory,
                .call = "bench",
                .problem = "an allocation on the device failed",
                .got = free_memory_text(),
                .wanted = core::binary_size(bytes)});
  }
  check(status, "cudaMalloc");
  data_ = static_cast<std::byte*>(data);
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr && cudaFree(data_) != cudaSuccess) cudaGetLastError();
}

void DeviceMemory::poison() {
  if (bytes_ == 0) return;
  check(cudaMemset(data_, 0xff, static_cast<std::size_t>(bytes_)), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

void DeviceMemory::upload(const void* host) {
  if (bytes_ == 0) return;
  check(cudaMemcpy(data_, host, static_cast<std::size_t>(bytes_), cudaMemcpyHostToDevice), "cudaMemcpy");
}

void DeviceMemory::download(void* host) const {
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  if (bytes_ == 0) return;
  check(cudaMemcpy(host, data_, static_cast<std::size_t>(bytes_), cudaMemcpyDeviceToHost), "cudaMemcpy");
}

std::int64_t free_device_bytes() {
  if (!unavailable().empty()) return 0;
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<std::int64_t>(free);
}

std::int64_t workspace_peak() { return pool_peak(0); }

void reset_workspace_peak() { reset_pool_peak(0); }

void give_workspaces_back() { empty_pool(0); }

}  // namespace fovea::cuda

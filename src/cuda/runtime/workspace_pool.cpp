// One memory pool a device, which gives memory back only when told to.
#include "cuda/runtime/workspace_pool.h"

#include <array>
#include <mutex>
#include <string>

#include "core/problem_line.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/placement.h"

namespace fovea::cuda {
namespace {

constexpr std::size_t kMaxDevices = 64;

cudaMemPool_t pool_of(int device) {
  static std::array<std::once_flag, kMaxDevices> made;
  static std::array<cudaMemPool_t, kMaxDevices> pools{};
  const auto i = static_cast<std::size_t>(device);
  std::call_once(made[i], [&] {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, device};
    check(cudaMemPoolCreate(&pools[i], &properties), "cudaMemPoolCreate");
    std::uint64_t everything = UINT64_MAX;
    check(cudaMemPoolSetAttribute(pools[i], cudaMemPoolAttrReleaseThreshold, &everything), "cudaMemPoolSetAttribute");
  });
  return pools[i];
}

}  // namespace

void* allocate_workspace(const AttentionProblem& problem, std::int64_t bytes, void* stream) {
  if (bytes <= 0) return nullptr;
  check_stream(stream, problem);
  const CurrentDevice current(problem.device.index);
  auto* cuda_stream = static_cast<cudaStream_t>(stream);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(cuda_stream, &capture), "cudaStreamIsCapturing");
  if (capture != cudaStreamCaptureStatusNone) {
    core::fail({.status = Status::invalid_argument,
                .call = "attention",
                .argument = "workspace",
                .problem = "the call would allocate while its stream is captured",
                .got = "no workspace",
                .wanted = std::to_string(bytes) + " bytes",
                .hint = "pass a workspace of workspace_bytes() that lives as long as the graph",
                .line = core::line_of(problem)});
  }
  void* data = nullptr;
  const cudaError_t status =
      cudaMallocFromPoolAsync(&data, static_cast<std::size_t>(bytes), pool_of(problem.device.index), cuda_stream);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    core::fail({.status = Status::out_of_memory,
                .call = "attention",
                .problem = "the workspace could not be allocated on the device",
                .got = free_memory_text(),
                .wanted = std::to_string(bytes) + " bytes",
                .hint = "pass a workspace, or ask for less at a time",
                .line = core::line_of(problem)});
  }
  check(status, "cudaMallocFromPoolAsync");
  return data;
}

void release_workspace(const AttentionProblem&, void* workspace, void* stream) {
  if (workspace == nullptr) return;
  // Runs while an error unwinds: must not throw, and a failure here follows one that was reported.
  if (cudaFreeAsync(workspace, static_cast<cudaStream_t>(stream)) != cudaSuccess) cudaGetLastError();
}

std::int64_t pool_peak(int device) {
  std::uint64_t bytes = 0;
  check(cudaMemPoolGetAttribute(pool_of(device), cudaMemPoolAttrUsedMemHigh, &bytes), "cudaMemPoolGetAttribute");
  return static_cast<std::int64_t>(bytes);
}

void reset_pool_peak(int device) {
  std::uint64_t none = 0;
  check(cudaMemPoolSetAttribute(pool_of(device), cudaMemPoolAttrUsedMemHigh, &none), "cudaMemPoolSetAttribute");
}

void empty_pool(int device) {
  const CurrentDevice current(device);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  check(cudaMemPoolTrimTo(pool_of(device), 0), "cudaMemPoolTrimTo");
}

}  // namespace fovea::cuda

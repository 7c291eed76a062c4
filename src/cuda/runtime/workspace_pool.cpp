// A workspace is the stream's idle block, or else comes from the library's memory pool of the device, which keeps freed
// memory until empty_pool(). In a capture it is memory of the graph.
#include "cuda/runtime/workspace_pool.h"

#include <cuda.h>

#include <array>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/binary_size.h"
#include "core/never_destroyed.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/driver_function.h"
#include "cuda/runtime/idle_blocks.h"
#include "cuda/runtime/placement.h"

namespace fovea::cuda {
namespace {

cudaMemPool_t pool_of(int device) {
  static std::array<std::once_flag, kMaxDevices> made;
  static std::array<cudaMemPool_t, kMaxDevices> pools{};
  const auto i = static_cast<std::size_t>(device);
  std::call_once(made[i], [&] {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, device};
    check(cudaMemPoolCreate(&pools[i], &properties), "cudaMemPoolCreate");
    std::uint64_t never_release = UINT64_MAX;
    check(cudaMemPoolSetAttribute(pools[i], cudaMemPoolAttrReleaseThreshold, &never_release),
          "cudaMemPoolSetAttribute");
  });
  return pools[i];
}

IdleBlocks& idle_of(int device) {
  static auto& all = core::never_destroyed<std::array<IdleBlocks, kMaxDevices>>();
  return all[static_cast<std::size_t>(device)];
}

// The driver's id of a stream of the current device; none if the driver is too old to tell. Then the stream keeps no
// block.
std::optional<std::uint64_t> id_of(cudaStream_t stream) {
  static const auto stream_id = driver_function<decltype(&cuStreamGetId)>("cuStreamGetId");
  unsigned long long id = 0;
  if (stream_id == nullptr || stream_id(stream, &id) != CUDA_SUCCESS) return std::nullopt;
  return id;
}

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing");
  return capture != cudaStreamCaptureStatusNone;
}

// A failure leaves the memory in the pool. It is not reported: this also runs while an error unwinds.
void free_in_order(void* data, cudaStream_t stream) {
  if (cudaFreeAsync(data, stream) != cudaSuccess) cudaGetLastError();
}

// The idle block of the stream if it is large enough; a smaller one is freed.
Buffer take_idle(int device, std::int64_t bytes, cudaStream_t stream) {
  const std::optional<std::uint64_t> id = id_of(stream);
  const IdleBlock idle = id ? idle_of(device).take(*id) : IdleBlock{};
  if (idle.bytes >= bytes) return {idle.data, idle.bytes};
  if (idle.data != nullptr) free_in_order(idle.data, stream);
  return {};
}

// Waits for the work of the current device and frees all its idle blocks.
void free_idle_blocks(int device) {
  const std::vector<IdleBlock> all = idle_of(device).take_all();
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  for (const IdleBlock& idle : all) free_in_order(idle.data, cudaStreamLegacy);
  check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
}

std::int64_t pool_attribute(int device, cudaMemPoolAttr which) {
  std::uint64_t bytes = 0;
  check(cudaMemPoolGetAttribute(pool_of(device), which, &bytes), "cudaMemPoolGetAttribute");
  return static_cast<std::int64_t>(bytes);
}

}  // namespace

Buffer allocate_workspace(const core::Plan& plan, void* stream) {
  const std::int64_t bytes = plan.workspace_bytes;
  if (bytes <= 0) return {};
  const CallSite site = site_of(plan);
  check_stream(stream, site);
  const CurrentDevice current(site.device);
  auto* cuda_stream = static_cast<cudaStream_t>(stream);
  // A graph gets memory of its own: the stream's idle block belongs to later calls.
  if (!is_captured(cuda_stream)) {
    if (const Buffer idle = take_idle(site.device, bytes, cuda_stream); idle.data != nullptr) return idle;
  }
  void* data = nullptr;
  const cudaError_t status =
      cudaMallocFromPoolAsync(&data, static_cast<std::size_t>(bytes), pool_of(site.device), cuda_stream);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    core::fail({.status = Status::out_of_memory,
                .call = std::string(site.call),
                .problem = "the workspace could not be allocated on the device",
                .got = free_memory_text(),
                .wanted = core::binary_size(bytes),
                .hint = "pass a workspace, or ask for less at a time",
                .line = site.line()});
  }
  check(status, "cudaMallocFromPoolAsync");
  return {data, bytes};
}

// Runs while an error unwinds too: must not throw.
void release_workspace(const core::Plan& plan, const Buffer& workspace, void* stream) try {
  if (workspace.data == nullptr) return;
  const int device = plan.device.index;
  const CurrentDevice current(device);
  auto* cuda_stream = static_cast<cudaStream_t>(stream);
  const std::optional<std::uint64_t> id = is_captured(cuda_stream) ? std::nullopt : id_of(cuda_stream);
  const bool kept = id && idle_of(device).keep({*id, workspace.data, workspace.bytes});
  if (!kept) free_in_order(workspace.data, cuda_stream);
} catch (...) {
}

std::int64_t pool_used(int device) { return pool_attribute(device, cudaMemPoolAttrUsedMemCurrent); }

std::int64_t pool_peak(int device) { return pool_attribute(device, cudaMemPoolAttrUsedMemHigh); }

void reset_pool_peak(int device) {
  const CurrentDevice current(device);
  free_idle_blocks(device);
  std::uint64_t none = 0;
  check(cudaMemPoolSetAttribute(pool_of(device), cudaMemPoolAttrUsedMemHigh, &none), "cudaMemPoolSetAttribute");
}

void empty_pool(int device) {
  const CurrentDevice current(device);
  free_idle_blocks(device);
  check(cudaMemPoolTrimTo(pool_of(device), 0), "cudaMemPoolTrimTo");
  check(cudaDeviceGraphMemTrim(device), "cudaDeviceGraphMemTrim");
}

}  // namespace fovea::cuda

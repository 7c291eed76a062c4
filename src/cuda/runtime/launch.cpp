// Launches, and what is known of each kernel.
#include "cuda/runtime/launch.h"

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "cuda/runtime/check.h"

namespace fovea::cuda {
namespace {

constexpr int kMaxDevices = 64;
constexpr int kFirstThatWaits = 90;  // ptx/grid_dependency.cuh

// Whether the code that the current device runs was compiled to wait for earlier kernels. A newer device than this
// build knows runs code of an older one. All kernels of a build are compiled for the same architectures.
bool waits_itself(const void* function) {
  enum : std::int8_t { unknown, no, yes };
  static std::array<std::atomic<std::int8_t>, kMaxDevices> known{};
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  auto& answer = known[static_cast<std::size_t>(device % kMaxDevices)];
  if (answer == unknown) {
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, function), "cudaFuncGetAttributes");
    answer = attributes.ptxVersion >= kFirstThatWaits ? yes : no;
  }
  return answer == yes;
}

}  // namespace

int resident_blocks(const void* function, int threads, int shared_bytes, int device) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::pair<const void*, int>, int>;  // never destroyed: calls may come at exit
  const std::lock_guard lock(mutex);
  if (const auto found = known.find({function, device}); found != known.end()) return found->second;
  check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
        "cudaFuncSetAttribute");
  int blocks = 0;
  check(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, static_cast<std::size_t>(shared_bytes)),
      "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  known[{function, device}] = blocks;
  return blocks;
}

void launch(const void* function, std::int64_t blocks, int threads, int shared_bytes, cudaStream_t stream,
            const void* parameters, Begin begin) {
  if (blocks == 0) return;
  void* arguments[] = {const_cast<void*>(parameters)};
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = begin == Begin::early && waits_itself(function) ? 1 : 0;
  check(cudaLaunchKernelExC(&config, function, arguments), "cudaLaunchKernelExC");
}

}  // namespace fovea::cuda

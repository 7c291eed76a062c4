// Launches, and what is known of each kernel.
#include "cuda/runtime/launch.h"

#include <map>
#include <mutex>
#include <utility>

#include "cuda/runtime/check.h"

namespace fovea::cuda {

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
            const void* parameters) {
  if (blocks == 0) return;
  void* arguments[] = {const_cast<void*>(parameters)};
  check(cudaLaunchKernel(function, dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)), arguments,
                         static_cast<std::size_t>(shared_bytes), stream),
        "cudaLaunchKernel");
}

}  // namespace fovea::cuda

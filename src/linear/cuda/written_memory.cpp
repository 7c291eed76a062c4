// Uses NVTX's memory extension.
#include "linear/cuda/written_memory.h"

#include <cuda_runtime_api.h>

#if __has_include(<nvtx3/nvToolsExtMemCudaRt.h>)
#include <nvtx3/nvToolsExtMemCudaRt.h>
#endif

namespace fovea::cuda {

void mark_written([[maybe_unused]] const void* data, [[maybe_unused]] std::int64_t bytes,
                  [[maybe_unused]] void* stream) {
#if __has_include(<nvtx3/nvToolsExtMemCudaRt.h>)
  const nvtxMemVirtualRangeDesc_t range{static_cast<std::size_t>(bytes), data};
  nvtxMemMarkInitializedBatch_t batch{};
  batch.extCompatID = NVTX_EXT_COMPATID_MEM;
  batch.structSize = sizeof batch;
  batch.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
  batch.regionDescCount = 1;
  batch.regionDescElementSize = sizeof range;
  batch.regionDescElements = &range;
  nvtxMemCudaMarkInitialized(nullptr, static_cast<cudaStream_t>(stream), 0, &batch);
#endif
}

}  // namespace fovea::cuda

// A kernel whose launch bound tells the host whether the code that a device runs uses wgmma.
#include "cuda/attention/any/parameters.h"
#include "cuda/ptx/wgmma.cuh"

namespace fovea::cuda::any {
namespace {

__global__ void __launch_bounds__(ptx::kHasWgmma ? kWarpgroup : kWarp) probe() {}

}  // namespace

const void* wgmma_probe() { return reinterpret_cast<const void*>(&probe); }

}  // namespace fovea::cuda::any

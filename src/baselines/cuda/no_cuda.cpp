// A build without CUDA has no baselines on GPUs.
#include "baselines/cuda/baselines.h"

namespace fovea::cuda::baselines {

std::span<const attention::Implementation> implementations() { return {}; }

}  // namespace fovea::cuda::baselines

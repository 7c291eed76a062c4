// Built instead of the CUDA files where FOVEA_CUDA is off: no implementations.
#include "baselines/cuda/baselines.h"

namespace fovea::cuda::baselines {

std::span<const attention::Implementation> implementations() { return {}; }

}  // namespace fovea::cuda::baselines

// Built instead of the CUDA folder when FOVEA_CUDA is off: no implementations.
#include "cuda/cuda.h"

namespace fovea::cuda {

std::span<const attention::Implementation> implementations() { return {}; }

}  // namespace fovea::cuda

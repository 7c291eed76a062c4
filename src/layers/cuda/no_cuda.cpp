// Built instead of the CUDA files where FOVEA_CUDA is off: no implementations.
#include "layers/cuda/layers.h"

namespace fovea::layers {

std::vector<Implementation> cuda_implementations() { return {}; }

}  // namespace fovea::layers

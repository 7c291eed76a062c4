// Built instead of the CUDA files where FOVEA_CUDA is off: no implementations.
#include "linear/cuda/linear.h"

namespace fovea::linear {

std::vector<Implementation> cuda_implementations() { return {}; }

}  // namespace fovea::linear

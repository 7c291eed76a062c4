// For builds without CUDA.
#include "linear/cuda/linear.h"

namespace fovea::linear {

std::vector<Implementation> cuda_implementations() { return {}; }

}  // namespace fovea::linear

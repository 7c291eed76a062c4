// Tiles that measurements try beside those of the library.
#pragma once

#include <vector>

#include "cuda/attention/any/parameters.h"

namespace fovea::cuda::any {

// Of one kernel and element type, for head dimensions up to their `dim`. bf16 and fp32 only.
std::vector<KernelInstance> variants(Kernel kernel, ElementKind kind);

}  // namespace fovea::cuda::any

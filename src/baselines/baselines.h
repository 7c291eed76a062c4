// Attention that keeps the whole score matrix and uses a library's matrix products: the forms that published
// comparisons call naive, vectorized and compiled.
#pragma once

#include <span>

#include "attention/implementation.h"

namespace fovea::baselines {

std::span<const attention::Implementation> implementations();

}  // namespace fovea::baselines

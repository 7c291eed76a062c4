// What attention costs when the whole score matrix is kept and matrix products come from a library: the forms that
// published comparisons call naive, vectorized and compiled.
#pragma once

#include <span>

#include "attention/implementation.h"

namespace fovea::baselines {

std::span<const attention::Implementation> implementations();

}  // namespace fovea::baselines

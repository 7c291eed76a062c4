// Making a failing case small.
#pragma once

#include <functional>

#include "core/problem_line.h"

namespace fovea::verification {

// Halves lengths, batch, heads and head dimensions and simplifies data, placement, layout and mask for as long as the
// case still fails. At most `tries` calls of `fails`.
core::Case shrunk(core::Case c, const std::function<bool(const core::Case&)>& fails, int tries = 200);

}  // namespace fovea::verification

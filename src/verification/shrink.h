// Making a failing case small.
#pragma once

#include <functional>

#include "verification/case.h"

namespace fovea::verification {

// Halves sizes and gives words their simplest value, or one with which a line gets shorter, for as long as the case
// still fails. Pass, device and seed stay. At
// most `tries` calls of `fails`.
Case shrunk(Case c, const std::function<bool(const Case&)>& fails, int tries = 200);

}  // namespace fovea::verification

// Shrinks a failing case.
#pragma once

#include <functional>

#include "verification/case.h"

namespace fovea::verification {

// Halves sizes, and gives words their simplest value or one that makes the line shorter, while the case still fails.
// Pass, device and seed stay. Calls `fails` at most `tries` times.
Case shrunk(Case c, const std::function<bool(const Case&)>& fails, int tries = 200);

}  // namespace fovea::verification

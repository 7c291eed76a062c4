// Clipping of gradients: what it finds, and how a GPU splits the sum of squares.
#pragma once

#include <cstdint>

namespace fovea::model {

// The norm of all gradients, and the factor that scales them down. It is copied from a GPU whole, so it has no padding,
// which nothing writes.
struct Clipping {
  double norm = 0, factor = 1;
};

// On a GPU a partial sum is of so many squares.
inline constexpr std::int64_t kSquares = 4096;

}  // namespace fovea::model

// A kernel's time for a tile choice, by a model of the chip's load.
#pragma once

#include "cuda/attention/any/tile_choice.h"

namespace fovea::cuda::any {

// Cycles of the whole kernel by the model, with combining.
double cycles_of(const TileChoice& one, ElementKind kind, int device);

}  // namespace fovea::cuda::any

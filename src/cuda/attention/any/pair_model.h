// The two gradient kernels of a backward call, which run side by side: how each is cut, chosen together.
#pragma once

#include <utility>
#include <vector>

#include "cuda/attention/any/tile_choice.h"

namespace fovea::cuda::any {

// One of each, such that both and the joining of their parts take least by the model. Of fp32.
std::pair<TileChoice, TileChoice> choose_pair(const std::vector<TileChoice>& keys,
                                              const std::vector<TileChoice>& queries, int device);

}  // namespace fovea::cuda::any

// Predicts the time of tile choices: cycles of MMAs, exponentials, stores, combining and launches, in whole waves over
// the chip. The constants are in arch_spec.h.
#pragma once

#include <utility>
#include <vector>

#include "cuda/attention/any/tile_choice.h"

namespace fovea::cuda::any {

// Cycles of a kernel that runs alone on the chip, combining included.
double cycles_of(const TileChoice& one, ElementKind kind, int device);

struct BackwardChoice {
  TileChoice dkdv, dq;
  double cycles = 0;
};

// The two gradient kernels of an fp32 backward call, which run concurrently: the choices that minimize the time of both
// and of their combine. Splits of dK and dV occupy the SMs first; those of dQ fill the rest.
BackwardChoice fastest_pair(const std::vector<TileChoice>& dkdv, const std::vector<TileChoice>& dq, int device);

}  // namespace fovea::cuda::any

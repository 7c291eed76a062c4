// Predicts the time of tile choices: products, exponentials, stores, combining and launches, in whole waves over the
// chip. The constants are in arch_spec.h.
#pragma once

#include <vector>

#include "cuda/attention/any/tile_choice.h"

namespace fovea::cuda::any {

// Cycles of a kernel that runs alone on the chip, combining included.
double cycles_of(const TileChoice& one, ElementKind kind, int device);

struct BackwardChoice {
  TileChoice dkdv, dq;
  double cycles = 0;
};

// Cycles that are added when forward choices are compared. Splits through memory need a second kernel, which the host
// has to launch, and their partials reach memory; cycles_of knows graphs only. 0 for other choices, and for backward,
// which has several kernels in any case.
double extra_cycles(const TileChoice& one, int device);

// The choices for the two gradient kernels with the smallest predicted time of both, combining included. They run
// concurrently: thread blocks for dK and dV occupy the SMs first, those for dQ fill the rest.
BackwardChoice fastest_pair(const std::vector<TileChoice>& dkdv, const std::vector<TileChoice>& dq, ElementKind kind,
                            int device);

}  // namespace fovea::cuda::any

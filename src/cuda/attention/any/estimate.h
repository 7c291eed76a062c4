// Predicts the time of tile choices: products, exponentials, stores, combining and launches, in whole waves over the
// chip. The constants are in arch_spec.h.
#pragma once

#include <vector>

#include "cuda/attention/any/tile_choice.h"

namespace fovea::cuda::any {

// Splits through memory need one kernel more, which combines them. The host takes as long to launch it as the first, so
// among nearly equal predictions the choice with fewer kernels is preferred: those of the other count so much.
constexpr double kWeightOfCombining = 1.04;

// Cycles of a kernel that runs alone on the chip, combining included.
double cycles_of(const TileChoice& one, ElementKind kind, int device);

struct BackwardChoice {
  TileChoice dkdv, dq;
  double cycles = 0;
};

// The choices for the two gradient kernels with the smallest predicted time of both, combining included. They run
// concurrently: thread blocks for dK and dV occupy the SMs first, those for dQ fill the rest.
BackwardChoice fastest_pair(const std::vector<TileChoice>& dkdv, const std::vector<TileChoice>& dq, ElementKind kind,
                            int device);

}  // namespace fovea::cuda::any

// Predicts the time of tile choices: loads, products, exponentials, stores, combining and launches, and how thread
// blocks of equal or unequal length fill the chip. The constants are in arch_spec.h.
#pragma once

#include <vector>

#include "cuda/attention/any/tile_choice.h"

namespace fovea::cuda::any {

// Cycles of a kernel that runs alone on the chip, with its launch and combining.
double cycles_of(const TileChoice& one, ElementKind kind, int device);

// Cycles that are added to cycles_of when forward choices are compared. cycles_of is fitted to calls in graphs, which
// hide two costs of splits through memory: the host launches a second kernel, and their partials reach memory. 0 for
// other choices, and for backward, which has several kernels in any case.
double extra_cycles(const TileChoice& one, int device);

// Seconds of a call that follows another at once. `tile`: of one of its kernels; it tells whether they use wgmma.
double seconds_of(double cycles, const TileShape& tile, int device);

struct BackwardChoice {
  TileChoice dkdv, dq;
  double cycles = 0;
};

// The pair of choices for the two gradient kernels with the smallest predicted time, combining included. The kernels
// run concurrently: thread blocks for dK and dV occupy the SMs first, those for dQ fill the rest.
BackwardChoice fastest_pair(const std::vector<TileChoice>& dkdv, const std::vector<TileChoice>& dq, ElementKind kind,
                            int device);

}  // namespace fovea::cuda::any

// The time of tile choices: cycles of products, of the exponentials between them, of stores and combining, of launches,
// in whole waves over the chip. The constants are those of arch_spec.h.
#pragma once

#include <utility>
#include <vector>

#include "cuda/attention/any/tile_choice.h"

namespace fovea::cuda::any {

// Cycles of a kernel that has the chip to itself, with combining.
double cycles_of(const TileChoice& one, ElementKind kind, int device);

struct Pair {
  TileChoice dkdv, dq;
  double cycles = 0;
};

// The two gradient kernels of a backward call in fp32, which run side by side: the choices with which both and the
// combining of their splits take least. Splits of dk and dv take their SMs first, those of dq fill what these leave.
Pair fastest_pair(const std::vector<TileChoice>& dkdv, const std::vector<TileChoice>& dq, int device);

}  // namespace fovea::cuda::any

// Into how many parts a kernel cuts each tile's work, by a model of the chip's load: kernel instances are compared by
// the time it gives them.
#pragma once

#include <cstdint>

#include "cuda/any/parameters.h"

namespace fovea::cuda::any {

inline std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Rows of blocks, one per tile: `work` blocks in `tiles` rows of up to `longest`.
struct Load {
  std::int64_t tiles = 0, longest = 0;
  double work = 0;
  double products = 0;       // of rows x block x dim each, per block
  double result_floats = 0;  // that one tile writes to a part, per row of the tile
  double joins = 1;          // kernels that join parts
};

struct Choice {
  Split split;
  int shared_bytes = 0;  // of a block of threads
  double clocks = 0;
};

// What measurements put in the place of the choice; the kernel must take the problem.
struct Forced {
  const KernelInstance* kernel = nullptr;
  int splits = 0;
  bool in_cluster = false;
};

// The fastest cut by the model, or the forced one.
Choice choose_split(const KernelInstance& kernel, ElementKind kind, const Load& load, int device, const Forced& forced);

}  // namespace fovea::cuda::any

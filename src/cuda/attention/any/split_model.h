// Into how many parts a kernel cuts each tile's work, by a model of the chip's load: kernel instances are compared by
// the time it gives them.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/attention/any/parameters.h"

namespace fovea::cuda::any {

inline std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Rows of blocks, one per tile: `work` blocks in `tiles` rows of up to `longest`.
struct Load {
  Kernel kernel = Kernel::forward;
  std::int64_t tiles = 0, longest = 0;
  double work = 0;
  double products = 0;       // of rows x block x dim each, per block
  double result_floats = 0;  // that one tile writes to a part, per row of the tile
  double joins = 1;          // kernels that join parts
};

// One way to cut a kernel's tiles: into parts through memory, or of a cluster.
struct Cut {
  Split split;
  int shared_bytes = 0;  // of a block of threads
  double resident = 0;   // blocks of threads that find a place on a multiprocessor
  double most = 0;       // that so much shared memory lets on it
  double capacity = 0;   // on the chip
};

// What measurements put in the place of the choice; the kernel must take the problem.
struct Forced {
  const KernelInstance* kernel = nullptr;
  int splits = 0;
  bool in_cluster = false;
};

// Every cut that may be worth while, or the forced one.
std::vector<Cut> cuts_of(const KernelInstance& kernel, const Load& load, int device, const Forced& forced);

// What the whole kernel takes by the model, with joining.
double clocks_of(const Cut& cut, const KernelInstance& kernel, ElementKind kind, const Load& load, int device);

// Whether all tiles have as much work.
bool is_even(const Load& load);

}  // namespace fovea::cuda::any

// Every way to tile a kernel of a problem: a kernel instance, and splits along its streamed side.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/attention/any/parameters.h"
#include "fovea/problem.h"

namespace fovea::cuda::any {

inline std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Rows of blocks, one per tile: `work` blocks in `tiles` rows of up to `longest`.
struct Workload {
  Kernel kernel = Kernel::forward;
  std::int64_t tiles = 0, longest = 0;
  double work = 0;
  double products = 0;       // of rows x block x dim each, per block
  double result_floats = 0;  // that one tile writes to a split, per row of the tile
  double joins = 1;          // results that are combined
};

// Splits that are combined through memory, or of a cluster.
struct Splitting {
  Split split;
  int shared_bytes = 0;  // of a thread block
  double resident = 0;   // thread blocks that fit an SM
  double most = 0;       // that so much shared memory lets on it
  double capacity = 0;   // on the chip
};

struct TileChoice {
  const KernelInstance* kernel = nullptr;
  Workload load;
  Splitting splitting;
};

// What measurements put in the place of the choice; the kernel must take the problem.
struct PlanOverride {
  const KernelInstance* kernel = nullptr;
  int splits = 0;
  bool in_cluster = false;
};

ElementKind kind_of(DType type);

bool fits(const KernelInstance& one, std::int64_t dim, int shared_limit);

// The candidates for one kernel of a problem, or what the override leaves of them.
std::vector<TileChoice> tile_choices(Kernel kernel, const AttentionProblem& problem, const PlanOverride& forced);

// Whether all tiles have as much work.
bool is_even(const Workload& load);

}  // namespace fovea::cuda::any

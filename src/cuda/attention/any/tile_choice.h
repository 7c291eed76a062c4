// The tile choices for a kernel of a problem. A choice is a kernel instance and a way to split its streamed operand.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/attention/any/parameters.h"
#include "cuda/attention/problem_shape.h"
#include "fovea/problem.h"

namespace fovea::cuda::any {

// The work of a kernel with one of its tiles.
struct Workload {
  Kernel kernel = Kernel::forward;
  std::int64_t tiles = 0;    // stationary tiles of the problem
  double busy_tiles = 0;     // those that see any row of the streamed operand; at least 1
  std::int64_t longest = 0;  // the most streamed tiles that one of them visits
  double work = 0;           // the sum of the streamed tiles that they visit
  double products = 0;       // MMAs of rows x streamed rows x dim per streamed tile
  double result_floats = 0;  // floats that a split writes per row of the tile
  double results = 1;        // tensors to combine: 2 for dK and dV, else 1
};

// One way to split the tiles, through memory or in clusters, and how the thread blocks then fit the chip.
struct Splitting {
  Split split;
  int shared_bytes = 0;        // of a thread block; clusters ask for more than they need, to be spread over the SMs
  double max_ctas_per_sm = 0;  // thread blocks that fit an SM with the shared memory that the kernel needs
  double ctas_per_sm = 0;      // thread blocks that fit an SM with `shared_bytes`
  double capacity = 0;         // thread blocks that fit the chip with `shared_bytes`
};

struct TileChoice {
  const KernelInstance* kernel = nullptr;
  Workload workload;
  Splitting splitting;
};

// Replaces the library's choice, for measurements; the kernel must take the problem. Null and 0: not replaced.
struct PlanOverride {
  const KernelInstance* kernel = nullptr;
  int splits = 0;
  bool in_cluster = false;
};

// Whether the tile has enough columns for the head dimension, and not too much shared memory.
bool fits(const KernelInstance& one, std::int64_t dim, int shared_limit);

// The candidates for one kernel of a problem, or what the override leaves of them.
std::vector<TileChoice> tile_choices(Kernel kernel, const AttentionProblem& problem, const PlanOverride& plan_override);

// Whether all tiles have equally much work.
bool has_equal_tiles(const Workload& workload);

}  // namespace fovea::cuda::any

// Every tile choice for a kernel of a problem: a kernel instance, and splits of its streamed operand.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/attention/any/parameters.h"
#include "fovea/problem.h"

namespace fovea::cuda::any {

inline std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The work of a kernel: `tiles` tiles that visit `work` streamed tiles in all, and `longest` at most.
struct Workload {
  Kernel kernel = Kernel::forward;
  std::int64_t tiles = 0, longest = 0;
  double work = 0;
  double products = 0;       // MMAs per streamed tile, of rows x streamed rows x dim each
  double result_floats = 0;  // that a split writes, per row of the tile
  double results = 1;        // gradients, or 1: results that are combined
};

// Splits that are combined through memory or in a cluster.
struct Splitting {
  Split split;
  int shared_bytes = 0;  // of a thread block
  double resident = 0;   // thread blocks that fit an SM
  double most = 0;       // that fit with this much shared memory
  double capacity = 0;   // on the chip
};

struct TileChoice {
  const KernelInstance* kernel = nullptr;
  Workload load;
  Splitting splitting;
};

// Replaces the choice, for measurements; the kernel must take the problem.
struct PlanOverride {
  const KernelInstance* kernel = nullptr;
  int splits = 0;
  bool in_cluster = false;
};

ElementKind kind_of(DType type);

bool fits(const KernelInstance& one, std::int64_t dim, int shared_limit);

// The candidates for one kernel of a problem, or what the override leaves of them.
std::vector<TileChoice> tile_choices(Kernel kernel, const AttentionProblem& problem, const PlanOverride& forced);

// Whether all tiles have equally much work.
bool is_even(const Workload& load);

}  // namespace fovea::cuda::any

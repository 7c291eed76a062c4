// Predicted time of the forward kernel with one of its tiles.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/attention/sm90/parameters.h"
#include "fovea/problem.h"

namespace fovea::cuda::sm90 {

// How a kernel instance divides a problem: query heads whose rows share a tile, and splits along the keys, which may be
// the thread blocks of a cluster.
struct Division {
  std::int64_t packed_heads = 1, splits = 1;
  bool in_cluster = false;
  std::int64_t resident = 0;  // clusters that fit the chip at once
};

// How many K/V tiles the query tiles of all sequences visit. TileVisits (visits.h) is of one sequence.
struct Visits {
  std::int64_t tiles = 0;    // query tiles
  double all = 0;            // visits of all query tiles
  std::int64_t longest = 0;  // visits of the one that makes most
  bool equal() const { return all >= 0.999 * static_cast<double>(longest * tiles); }
};
Visits visits_of(const AttentionProblem& problem, const ForwardTile& tile, std::int64_t packed_heads);

// Seconds of the launches and the kernels on a GPU with `sms` SMs. `visits`: with the instance's tile and
// the packed heads. An answer of `limit` or more is only a lower bound. Of cold calls with splits in memory, else of hot
// ones.
double seconds_of(const AttentionProblem& problem, const ForwardInstance& instance, const Division& division,
                  const Visits& visits, int sms, double limit = HUGE_VAL);

// Of a call that finds nothing in the caches, as cuda.any predicts them, from the answer of seconds_of.
double cold_seconds(const Division& division, double seconds);

}  // namespace fovea::cuda::sm90

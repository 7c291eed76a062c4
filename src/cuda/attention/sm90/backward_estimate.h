// Predicted time of the backward kernels with one of their tiles.
#pragma once

#include <cstdint>

#include "cuda/attention/sm90/backward_parameters.h"
#include "fovea/problem.h"

namespace fovea::cuda::sm90 {

// The query tiles that key tiles visit, over all query heads of a group.
struct QueryVisits {
  std::int64_t key_tiles = 0;  // of all (batch, key head)
  double all = 0;              // of all key tiles
  double longest = 0;          // of the one that visits most
  bool equal() const { return all >= 0.999 * longest * static_cast<double>(key_tiles); }
};
QueryVisits query_visits_of(const AttentionProblem& problem, const BackwardInstance& instance);

// Seconds of both launches and kernels on a GPU with `sms` SMs.
double seconds_of(const AttentionProblem& problem, const BackwardInstance& instance, int sms);

}  // namespace fovea::cuda::sm90

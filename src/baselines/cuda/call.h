// One call: its problem, and where its work is enqueued.
#pragma once

#include "fovea/attention.h"

namespace fovea::cuda::baselines {

struct Call {
  const AttentionProblem& problem;
  void* stream;
  Buffer products;  // memory for the matrix library
};

}  // namespace fovea::cuda::baselines

// One call: its problem and its stream.
#pragma once

#include "fovea/attention.h"

namespace fovea::cuda::baselines {

struct Call {
  const AttentionProblem& problem;
  void* stream;
  Buffer products;  // the matrix library's workspace
};

}  // namespace fovea::cuda::baselines

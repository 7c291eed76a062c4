// Predicted time of the backward kernels with one of their tiles.
#pragma once

#include "cuda/attention/sm90/backward_parameters.h"
#include "fovea/problem.h"

namespace fovea::cuda::sm90 {

// Seconds of the preprocess, the main kernel and, with splits, the combine on a GPU with `sms` SMs.
double seconds_of(const AttentionProblem& problem, const BackwardInstance& instance, const KeyTileOrder& order,
                  int sms);

}  // namespace fovea::cuda::sm90

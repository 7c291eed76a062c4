// Predicted time of the two-pass backward.
#pragma once

#include "cuda/attention/sm90/two_pass_parameters.h"
#include "fovea/problem.h"

namespace fovea::cuda::sm90 {

// Seconds of all launches and kernels on a GPU with `sms` SMs.
double seconds_of(const AttentionProblem& problem, const TwoPassInstance& kernels, int sms);

}  // namespace fovea::cuda::sm90

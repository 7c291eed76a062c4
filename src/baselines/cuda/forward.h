// Forward over the whole score matrix: S = Q K^T, P by one of three forms, P V.
#pragma once

#include "baselines/form.h"
#include "core/plan.h"
#include "fovea/attention.h"

namespace fovea::cuda::baselines {

void forward(fovea::baselines::Form form, const AttentionProblem& problem, const ForwardTensors& tensors,
             const core::RunContext& context);

}  // namespace fovea::cuda::baselines

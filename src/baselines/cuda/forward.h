// Forward over the whole score matrix: S = Q K^T, P by one of three forms, P V.
#pragma once

#include "baselines/cuda/plan.h"
#include "core/plan.h"
#include "fovea/attention.h"

namespace fovea::cuda::baselines {

void forward(const Plan& plan, const ForwardTensors& tensors, const core::RunContext& context);

}  // namespace fovea::cuda::baselines

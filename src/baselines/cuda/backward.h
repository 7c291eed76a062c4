// Backward over the whole score matrix: P (saved or recomputed), dP, dS, and the products that give dq, dk and dv.
#pragma once

#include "baselines/cuda/plan.h"
#include "core/plan.h"
#include "fovea/attention.h"

namespace fovea::cuda::baselines {

void backward(const Plan& plan, const BackwardTensors& tensors, const core::RunContext& context);

}  // namespace fovea::cuda::baselines

// Launching the kernels of a plan: tensors -> tensor maps and parameters -> launch.
#pragma once

#include "cuda/attention/sm90/plan.h"
#include "fovea/attention.h"

namespace fovea::cuda::sm90 {

// Enqueues after checking that tensors and stream belong to the device. `plan` comes from `prepare` or
// `plan_forward`.
void forward(const core::Plan& plan, const ForwardTensors& tensors, const core::RunContext& context);
void backward(const core::Plan& plan, const BackwardTensors& tensors, const core::RunContext& context);

}  // namespace fovea::cuda::sm90

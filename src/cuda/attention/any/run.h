// Launching the kernels of a plan: tensors -> parameters -> launches.
#pragma once

#include "cuda/attention/any/plan.h"
#include "fovea/attention.h"

namespace fovea::cuda::any {

// Enqueue the launches of a plan on the context's stream. Nothing checks that the tensors are on the plan's device.
void enqueue(const ForwardPlan& plan, const ForwardTensors& tensors, const core::RunContext& context);
void enqueue(const BackwardPlan& plan, const BackwardTensors& tensors, const core::RunContext& context);

// The same, after checking that tensors and stream belong to the device. `plan` comes from `prepare`.
void forward(const core::Plan& plan, const ForwardTensors& tensors, const core::RunContext& context);
void backward(const core::Plan& plan, const BackwardTensors& tensors, const core::RunContext& context);

}  // namespace fovea::cuda::any

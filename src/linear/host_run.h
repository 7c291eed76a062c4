// Runs of a plan of host_plan.h.
#pragma once

#include "core/plan.h"
#include "fovea/linear.h"

namespace fovea::linear {

void forward_on_host(const core::Plan& plan, const LinearForwardTensors& tensors, const core::RunContext& context);
void backward_on_host(const core::Plan& plan, const LinearBackwardTensors& tensors, const core::RunContext& context);

}  // namespace fovea::linear

// The host half of the kernels: tensors -> parameters -> launches.
#pragma once

#include "core/implementation.h"

namespace fovea::cuda::any {

void forward(const AttentionProblem& problem, const ForwardTensors& tensors, const core::RunContext& context);
void backward(const AttentionProblem& problem, const BackwardTensors& tensors, const core::RunContext& context);

}  // namespace fovea::cuda::any

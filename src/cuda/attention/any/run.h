// The host half of the kernels: tensors -> parameters -> launches.
#pragma once

#include "core/implementation.h"
#include "cuda/attention/any/plan.h"

namespace fovea::cuda::any {

// The launches of a plan, on the context's stream; the tensors are trusted to be where the problem says.
void enqueue(const ForwardPlan& plan, const AttentionProblem& problem, const ForwardTensors& tensors,
             const core::RunContext& context);
void enqueue(const BackwardPlan& plan, const AttentionProblem& problem, const BackwardTensors& tensors,
             const core::RunContext& context);

void forward(const AttentionProblem& problem, const ForwardTensors& tensors, const core::RunContext& context);
void backward(const AttentionProblem& problem, const BackwardTensors& tensors, const core::RunContext& context);

}  // namespace fovea::cuda::any

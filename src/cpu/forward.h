// Forward over threads: plan and run.
#pragma once

#include "core/implementation.h"
#include "cpu/kernels/kernels.h"

namespace fovea::cpu {

core::Plan plan_forward(const Kernels& kernels, const AttentionProblem& problem);
void run_forward(const Kernels& kernels, const AttentionProblem& problem, const ForwardTensors& tensors,
                 const core::RunContext& context);

}  // namespace fovea::cpu

// Forward over threads: plan and run.
#pragma once

#include "core/implementation.h"
#include "cpu/kernels/kernels.h"

namespace fovea::cpu {

core::Plan plan_forward(const Kernels& kernels, const AttentionProblem& problem);
std::string forward_tiles(const Kernels& kernels, const AttentionProblem& problem);  // one line, for `explain`
void run_forward(const Kernels& kernels, const AttentionProblem& problem, const ForwardTensors& tensors,
                 const core::RunContext& context);

}  // namespace fovea::cpu

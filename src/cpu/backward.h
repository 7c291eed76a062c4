// Backward over threads: plan and run.
#pragma once

#include "core/implementation.h"
#include "cpu/kernels/kernels.h"

namespace fovea::cpu {

core::Plan plan_backward(const Kernels& kernels, const AttentionProblem& problem);
std::string backward_tiles(const Kernels& kernels, const AttentionProblem& problem);  // one line, for `explain`
void run_backward(const Kernels& kernels, const AttentionProblem& problem, const BackwardTensors& tensors,
                  const core::RunContext& context);

}  // namespace fovea::cpu

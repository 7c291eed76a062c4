// Every compiled tile of cuda.any, with every kind of splits that this device runs, and a run of one of them.
#pragma once

#include <string>
#include <vector>

#include "cuda/attention/any/plan.h"
#include "fovea/attention.h"
#include "verification/attention/case.h"

namespace fovea::cuda {

struct TileRun {
  any::Kernel kernel;
  std::string dtype;
  any::PlanOverride choice;
};

// Also tiles that the plans of this GPU never choose.
std::vector<TileRun> every_tile();

std::string text_of(const TileRun& tile, const verification::AttentionCase& c);

// Without the gradients that the kernel does not compute.
BackwardTensors gradients_of(any::Kernel kernel, BackwardTensors tensors);

// The problem of the pass to which the kernel belongs, on this device, with the kernel's gradients.
AttentionProblem problem_of(any::Kernel kernel, AttentionProblem problem);

// Runs the pass with this tile, and waits for it. `problem` is what problem_of gave.
void run_forward(const TileRun& tile, const AttentionProblem& problem, const ForwardTensors& tensors);
void run_backward(const TileRun& tile, const AttentionProblem& problem, const BackwardTensors& tensors);

}  // namespace fovea::cuda

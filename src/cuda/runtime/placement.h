// Are memory and stream of a call where the problem says? Asked before anything is launched.
#pragma once

#include "core/implementation.h"
#include "fovea/attention.h"

namespace fovea::cuda {

// Throw Error(invalid_argument) if the stream belongs to another device than the problem, or if a tensor, the saved
// state or the workspace is not reachable from the problem's. What is null or empty passes.
void check_placements(const AttentionProblem& problem, const ForwardTensors& t, const core::RunContext& context);
void check_placements(const AttentionProblem& problem, const BackwardTensors& t, const core::RunContext& context);

// Throws Error(invalid_argument) if the stream belongs to another device.
void check_stream(void* stream, const AttentionProblem& problem);

}  // namespace fovea::cuda

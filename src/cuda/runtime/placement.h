// Are the tensors and the stream where the problem says? Asked before anything is launched.
#pragma once

#include <string_view>

#include "fovea/attention.h"

namespace fovea::cuda {

// Throws Error(invalid_argument) if the tensor's memory is not reachable from the problem's device. Null views pass.
void check_placement(const TensorView& tensor, std::string_view name, const AttentionProblem& problem);

// Throws Error(invalid_argument) if the stream belongs to another device.
void check_stream(void* stream, const AttentionProblem& problem);

}  // namespace fovea::cuda

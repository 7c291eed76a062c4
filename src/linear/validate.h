// Linear's refusals. Nothing is read through a pointer here.
#pragma once

#include <string_view>

#include "fovea/linear.h"

namespace fovea::linear {

// Throw Error(invalid_argument) naming the argument, what it is and what it should be.
LinearProblem validate(const LinearForwardTensors& tensors, const LinearOptions& options, std::string_view call);
LinearProblem validate(const LinearBackwardTensors& tensors, const LinearOptions& options, std::string_view call);
void validate(const LinearProblem& problem, std::string_view call);

}  // namespace fovea::linear

// Refusals of layers. Nothing is read through a pointer here.
#pragma once

#include <cstdint>
#include <string_view>

#include "attention/validate.h"
#include "fovea/layers.h"

namespace fovea::layers {

using core::kMaxDim;

// Whether elements of every tensor and multiply-adds of every part can be counted. Sizes of 0 count as 1.
bool sizes_fit(const LayerProblem& problem);

// Throw Error(invalid_argument) naming the argument, what it is and what it should be.
LayerProblem validate(const LayerForwardTensors& tensors, const LayerOptions& options, std::string_view call);
LayerProblem validate(const LayerBackwardTensors& tensors, const LayerOptions& options, std::string_view call);
void validate(const LayerProblem& problem, std::string_view call);

}  // namespace fovea::layers

// A layer's parts as problems of attention and Linear, and which of them backward needs.
#pragma once

#include "fovea/layers.h"
#include "layers/projections.h"

namespace fovea::layers {

// Attention between the projections; in backward with the gradients that are needed.
AttentionProblem attention_of(const LayerProblem& problem);

// A projection's product in forward.
LinearProblem forward_of(const LayerProblem& problem, const Step& step);

// A projection's part in backward: gradients of its weight and bias as wanted. dx, the gradient of what it reads, is
// wanted if `with_dx`; the caller says its type and whether it accumulates.
LinearProblem backward_of(const LayerProblem& problem, const Step& step, bool with_dx);

// Whether backward needs the gradient of a projection's result, and of what projections read.
bool needs_result_gradient(const LayerProblem& problem, const Steps& steps, const Step& step);
bool needs_gradient(const LayerProblem& problem, const Steps& steps, Source source);

}  // namespace fovea::layers

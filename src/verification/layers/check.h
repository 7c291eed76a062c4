// The expected results of a layer: the reference, and bounds from the plain evaluation's error in the same precision.
#pragma once

#include <cstdint>
#include <vector>

#include "fovea/layers.h"
#include "verification/layers/evaluator.h"
#include "verification/operation.h"

namespace fovea::verification {

// `results`: the tensors of one pass that are wanted. `given`: the inputs, and gradients that the call adds to. Of
// results with more than 2^23 elements, random rows are compared, drawn from the seed. `poisoned`: an input is not
// finite everywhere; then gradients of parameters may be NaN, and rows of the batch elements that hold such a number,
// since attention multiplies by the zeros of hidden pairs. Other batch elements are judged as always. The expectation
// keeps a reference to the evaluator.
Expectation expect_layer(const LayerProblem& problem, const std::vector<TensorSpec>& results, const TensorSet& given,
                         std::uint64_t seed, bool poisoned, const LayerEvaluator& evaluator = layer_evaluator_on_cpu());

}  // namespace fovea::verification

// Measures the plain evaluation's error in several variants, on the problem and on companions. Equal keys or small
// integers may make it exact by accident, and with few numbers its error is a matter of luck.
#pragma once

#include <vector>

#include "fovea/attention.h"
#include "verification/attention/evaluation.h"
#include "verification/expectation.h"

namespace fovea::verification {

// Both raise the bounds of `expected`, which holds the references, and set its `measure_rest` and `measure_more`: most
// answers pass without these. `before`: the former
// values of gradients that are accumulated into. `lse`: the memory behind `inputs.lse`, if the caller does not keep it.
void measure_plain(const AttentionProblem& problem, const ForwardTensors& inputs, const Sample& sample,
                   Expectation& expected);
void measure_plain(const AttentionProblem& problem, const BackwardTensors& inputs, const Sample& sample,
                   const Gradients& before, std::vector<float> lse, Expectation& expected);

}  // namespace fovea::verification

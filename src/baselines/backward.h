// Backward over the whole score matrix: probabilities (saved or recomputed), their gradient, that of the scores, and
// the products that make dq, dk, dv.
#pragma once

#include "baselines/form.h"
#include "core/plan.h"
#include "fovea/attention.h"

namespace fovea::baselines {

void backward(Form form, const AttentionProblem& problem, const BackwardTensors& tensors,
              const core::RunContext& context);

}  // namespace fovea::baselines

// Backward over the whole score matrix: P (saved or recomputed), dP, dS, and the products that give dq, dk and dv.
#pragma once

#include "baselines/form.h"
#include "core/plan.h"
#include "fovea/attention.h"

namespace fovea::baselines {

void backward(Form form, const AttentionProblem& problem, const BackwardTensors& tensors,
              const core::RunContext& context);

}  // namespace fovea::baselines

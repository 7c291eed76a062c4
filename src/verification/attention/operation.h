// Attention as an operation.
#pragma once

#include <functional>

#include "fovea/tensor.h"
#include "verification/attention/evaluation.h"
#include "verification/operation.h"

namespace fovea::verification {

const Operation& attention_operation();

// Sets the evaluator of the reference for large problems on each device. Without one the CPU evaluates it.
void evaluate_attention_by(std::function<ReferenceEvaluator(DeviceKind)> evaluator_on);

}  // namespace fovea::verification

// Attention as an operation.
#pragma once

#include <functional>

#include "fovea/tensor.h"
#include "verification/attention/evaluation.h"
#include "verification/operation.h"

namespace fovea::verification {

const Operation& attention_operation();

// Who evaluates the reference for large problems on a device; the CPU unless a program says who is faster.
void evaluate_attention_by(std::function<ReferenceEvaluator(DeviceKind)> evaluator_on);

}  // namespace fovea::verification

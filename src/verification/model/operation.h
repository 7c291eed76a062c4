// A transformer's passes as an operation: losses, gradients, a step of the optimizer.
#pragma once

#include <string_view>

#include "verification/operation.h"

namespace fovea::verification {

inline constexpr std::string_view kModelImplementation = "fovea";

const Operation& model_operation();

}  // namespace fovea::verification

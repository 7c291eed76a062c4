// Linear as an operation.
#pragma once

#include "verification/operation.h"

namespace fovea::verification {

const Operation& linear_operation();

}  // namespace fovea::verification

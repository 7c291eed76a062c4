// An operation that only tests know: y = s x, one factor s per row, with both gradients.
#pragma once

#include "verification/operation.h"

namespace fovea::tests {

// Its implementations: rows.plain, and when named rows.short, which forgets the last column of rows of 7 and more.
const verification::Operation& row_scaling();

}  // namespace fovea::tests

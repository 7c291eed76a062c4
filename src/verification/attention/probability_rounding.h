// The largest error of out that rounding P once can cause, derived for rows of few keys.
#pragma once

#include <vector>

#include "fovea/attention.h"
#include "verification/comparer.h"

namespace fovea::verification {

// For each row of `out` (the reference's), a bound of the error's Euclidean norm if P is rounded once to the inputs'
// type, before or after it is divided by its sum, and out once to its own. docs/numerics.md derives it. 0 where
// measuring the plain evaluation suffices: P is not rounded (fp32), or the row sees more than five keys.
std::vector<double> errors_of_one_rounding(const AttentionProblem& problem, const ForwardTensors& tensors,
                                           const RowValues& out);

}  // namespace fovea::verification

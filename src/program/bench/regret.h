// The regret of the library's choice of an implementation, where the others that it could choose were timed too.
#pragma once

#include <string>
#include <vector>

#include "program/bench/contender.h"
#include "program/record/record.h"
#include "verification/case.h"

namespace fovea::program {

// The regret of a problem is the time of the chosen implementation over the time of the fastest one. A line with the
// geometric mean over all problems, and the worst ones, each with the faster implementation. Empty if `flash` is not
// among the contenders, or no other implementation that it could choose.
std::string regret_summary(const std::vector<Contender>& contenders, const std::vector<verification::Case>& cases,
                           const std::vector<Row>& rows);

}  // namespace fovea::program

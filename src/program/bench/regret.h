// What the library's choice costs where the implementations that it chooses from were timed too.
#pragma once

#include <string>
#include <vector>

#include "program/bench/contender.h"
#include "program/record/record.h"
#include "verification/case.h"

namespace fovea::program {

// The regret of a problem is the time of the chosen implementation over the time of the fastest one. A line with the
// geometric mean over all problems, and the worst ones, each with the faster implementation. Empty if `flash` is not
// among the contenders, or nothing else that it may choose.
std::string regret_summary(const std::vector<Contender>& contenders, const std::vector<verification::Case>& cases,
                           const std::vector<Row>& rows);

}  // namespace fovea::program

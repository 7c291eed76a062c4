// The problem line of a plan.
#include "attention/plan.h"

#include "attention/problem_line.h"

namespace fovea::attention {

std::string Plan::line() const { return core::line_of(problem); }

}  // namespace fovea::attention

// Sentences that a report states about its rows, each made by a rule from the rows and by nothing else.
#pragma once

#include <string>
#include <vector>

#include "program/report_study.h"

namespace fovea::program {

// One or two sentences: what was measured, and who is fastest.
std::string headline_of(const Study& study);

// Speed-ups and losses, growth with length, memory, share of the ceiling, failures, flags, sums that do not add up.
std::vector<std::string> observations_of(const Study& study);

}  // namespace fovea::program

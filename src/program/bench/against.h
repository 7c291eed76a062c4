// Two builds in one run: compares the times of an older program's implementations with ours.
#pragma once

#include <string>
#include <vector>

#include "program/bench/contender.h"
#include "program/record/record.h"

namespace fovea::program {

inline constexpr double kNoticed = 0.03;  // a cell whose ratio is further from 1 is listed

// For each implementation, the geometric mean of old time over new time (above 1: this program is faster), and the
// cells beyond kNoticed. Empty if no cell has both times.
std::string against_summary(const std::vector<Contender>& contenders, const std::vector<verification::Case>& cases,
                            const std::vector<Row>& rows);

}  // namespace fovea::program

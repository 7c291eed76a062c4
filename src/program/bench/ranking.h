// Which times may be compared, and who is fastest: one rule for the table of a bench and for reports.
#pragma once

#include <vector>

#include "program/record/record.h"

namespace fovea::program {

bool is_timed(const Row& row);

// May it enter a comparison? Impossible times and times of little but the call itself may not.
bool is_ranked(const Row& row);

// Can two times be told apart? Those of quiet cells can; where one is noisy, if their quartiles do not overlap.
bool told_apart(const Row& a, const Row& b);

// The fastest of the rows of one problem; null unless it is told apart from every other, and there is another.
const Row* fastest_of(const std::vector<const Row*>& rows);

}  // namespace fovea::program

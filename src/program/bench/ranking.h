// Which times may be compared, and which is fastest. The table of a bench and reports share these rules.
#pragma once

#include <vector>

#include "program/record/record.h"

namespace fovea::program {

bool is_timed(const Row& row);

// Whether a row may enter a comparison. Impossible and launch-bound times may not.
bool is_ranked(const Row& row);

// Whether two times can be told apart: always if neither is noisy, otherwise if their quartiles do not overlap.
bool told_apart(const Row& a, const Row& b);

// The fastest row of one problem; null if there is no other row, or if it cannot be told apart from one of them.
const Row* fastest_of(const std::vector<const Row*>& rows);

}  // namespace fovea::program

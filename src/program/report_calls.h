// Calls that are timed one by one no more: a node of a graph of them, and how long one keeps the host.
#pragma once

#include <string>
#include <vector>

#include "program/report_study.h"
#include "program/report_table.h"

namespace fovea::program {

// A table per way of timing, with a line per problem: every implementation in microseconds, and where the host was
// timed the launches alone and what is beyond them. Empty where there are no such rows.
std::vector<Table> call_tables(const Study& study);

// The same in sentences, of this library's implementations.
std::vector<std::string> said_of_calls(const Study& study);

}  // namespace fovea::program

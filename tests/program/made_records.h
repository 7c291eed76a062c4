// Records made up for tests, written as the program writes them.
#pragma once

#include <string>
#include <vector>

#include "program/record/record.h"

namespace fovea::tests {

program::Environment made_environment();
program::Environment environment_of_another_commit();
program::Row made_row(const std::string& problem, const std::string& impl, std::vector<double> samples);
program::Row failed_row(const std::string& problem, const std::string& impl, const std::string& status);

// The lines of a file: the environment, then the rows.
std::string text_of(const program::Environment& environment, const std::vector<program::Row>& rows);

}  // namespace fovea::tests

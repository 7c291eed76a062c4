// The environment that a file of records begins with: this machine, this build, this command.
#pragma once

#include <string>
#include <vector>

#include "program/machine/machine.h"
#include "program/record/record.h"

namespace fovea::program {

// Without ceilings. `typed` are the words of the command line.
Environment session_environment(const Machine& machine, const std::vector<std::string>& typed, int threads);

}  // namespace fovea::program

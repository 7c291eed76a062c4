// Presets: named grids of cases, with the implementations and conditions they are meant for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "verification/case.h"

namespace fovea::program {

enum class Scale : std::uint8_t { quick, full };  // quick: a cut of the grid that two cores finish in minutes

struct Preset {
  std::string name;                          // report-b
  std::string conditions;                    // what is common to all cases, in words
  std::vector<std::string> implementations;  // what runs where --impl says nothing
  std::vector<std::string> full;             // sweep lines; each case is one problem and one pass
  std::vector<std::string> quick;
  double budget_s = 0;  // what the whole sweep should take; 0: as long as it takes
};

// THE table. To add a preset, add a row.
const std::vector<Preset>& presets();

// Throws Error(invalid_argument) that names the nearest preset if there is none of this name.
const Preset& find_preset(std::string_view name);

// The cases of a preset in the order of its lines; none twice.
std::vector<verification::Case> preset_cases(std::string_view name, Scale scale);

}  // namespace fovea::program

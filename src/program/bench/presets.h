// Presets: named grids of cases, with implementations and conditions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "verification/case.h"

namespace fovea::program {

struct Limit;

enum class Scale : std::uint8_t { quick, full };  // quick: a part of the grid that two cores finish in minutes

struct Preset {
  std::string name;                          // report-b
  std::string conditions;                    // the common properties of all cases, in words
  std::vector<std::string> implementations;  // run if --impl is not given
  std::vector<std::string> full;             // sweep lines; each case is one problem and one pass
  std::vector<std::string> quick;
  double budget_s = 0;  // seconds that the whole sweep should take; 0: no budget
  // Its cells and implementations are those of these limits, in runs of several thread counts; null: it has none.
  const std::vector<Limit>& (*limits)() = nullptr;
};

// The table of presets. To add a preset, add a row.
const std::vector<Preset>& presets();

// Throws Error(invalid_argument) with the nearest preset if none has this name.
const Preset& find_preset(std::string_view name);

// The cases of a preset in the order of its lines, without duplicates.
std::vector<verification::Case> preset_cases(std::string_view name, Scale scale);

}  // namespace fovea::program

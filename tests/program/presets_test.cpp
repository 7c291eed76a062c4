// Presets: the quick scale is a cut of the full one, and an unknown name is refused with the nearest one. That grids
// are those of the published tables is checked beside the tables (tests/report).
#include "program/bench/presets.h"

#include <gtest/gtest.h>

#include <set>

#include "fovea/error.h"
#include "verification/problem_line.h"

namespace fovea::program {
namespace {

std::set<std::string> lines(const std::vector<verification::Case>& cases) {
  std::set<std::string> set;
  for (const verification::Case& c : cases) set.insert(verification::line_of(c));
  return set;
}

TEST(Presets, QuickScaleIsAPartOfFull) {
  for (const Preset& preset : presets()) {
    if (preset.name == "quick") continue;  // a cut of all the others
    const auto full = lines(preset_cases(preset.name, Scale::full));
    for (const std::string& one : lines(preset_cases(preset.name, Scale::quick))) {
      EXPECT_TRUE(full.contains(one)) << preset.name << ": " << one;
    }
  }
}

TEST(Presets, NoCaseTwice) {
  for (const Preset& preset : presets()) {
    const auto cases = preset_cases(preset.name, Scale::full);
    EXPECT_EQ(lines(cases).size(), cases.size()) << preset.name;
  }
}

TEST(Presets, UnknownNameIsRefusedWithTheNearest) {
  try {
    (void)preset_cases("reprt-b", Scale::quick);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::invalid_argument);
    EXPECT_EQ(error.details().hint, "did you mean `report-b`?");
  }
}

}  // namespace
}  // namespace fovea::program

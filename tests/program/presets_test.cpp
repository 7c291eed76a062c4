// Presets: the quick scale is a cut of the full one, and an unknown name is refused with the nearest one. That grids
// are those of the published tables is checked beside the tables (tests/report).
#include "program/bench/presets.h"

#include <gtest/gtest.h>

#include <set>

#include "fovea/error.h"
#include "program/record/record_file.h"
#include "run_program.h"
#include "verification/layers/operation.h"
#include "verification/problem_line.h"

namespace fovea::program {
namespace {

[[maybe_unused]] const bool kRegistered = (verification::register_layers(), true);

std::set<std::string> lines(const std::vector<verification::Case>& cases) {
  std::set<std::string> set;
  for (const verification::Case& c : cases) set.insert(verification::line_of(c));
  return set;
}

TEST(Presets, QuickScaleIsAPartOfFull) {
  for (const Preset& preset : presets()) {
    if (preset.name == "quick") continue;     // a cut of all the others
    if (preset.name == "report-c") continue;  // a cut of its layers: the next test
    const auto full = lines(preset_cases(preset.name, Scale::full));
    for (const std::string& one : lines(preset_cases(preset.name, Scale::quick))) {
      EXPECT_TRUE(full.contains(one)) << preset.name << ": " << one;
    }
  }
}

// Length 512, and a quarter of the heads, key heads and latents.
TEST(Presets, LayersOfTheQuickScaleAreSmallerOnesOfFull) {
  const auto full = lines(preset_cases("report-c", Scale::full));
  EXPECT_EQ(full.size(), 15u * 2 * 3);
  std::set<std::string> cut;
  for (const std::string& line : full) {
    verification::Case c = verification::parse_case(line);
    std::vector<bool> given;  // widths and the sizes of keys follow from the others
    for (const core::Key& key : c.values.table().keys)
      given.push_back(!c[key.name].empty() && !verification::is_fallback(c, key));
    for (const char* const key : {"hq", "hkv", "latent"}) {
      if (c.values.table().find(key) != nullptr) c.values.set(key, c.count(key) / 4);
    }
    c.values.set("lq", std::int64_t{512});
    c.values.resolve(given);
    cut.insert(verification::line_of(c));
  }
  EXPECT_EQ(lines(preset_cases("report-c", Scale::quick)), cut);
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

// Too little memory for any cell, so that nothing is timed.
TEST(Presets, WhatOnlyThePresetNamesHasNoRowWhereAnOperationLacksIt) {
  const auto model_rows = [](std::vector<std::string> more) {
    const tests::Folder folder;
    const std::string file = folder / "run.jsonl";
    more.insert(more.begin(), {"bench", "--preset", "quick", "--memory-limit", "1M", "-o", file});
    EXPECT_EQ(tests::fovea(more).code, 0);
    std::vector<std::string> rows;
    for (const Row& row : load_records(file).rows) {
      if (row.problem.starts_with("op=model ")) rows.push_back(row.impl + " " + row.status);
    }
    return rows;
  };
  EXPECT_EQ(model_rows({}), std::vector<std::string>{"fovea oom"});
  EXPECT_EQ(model_rows({"--impl", "naive,flash"}), (std::vector<std::string>{"naive unsupported", "fovea oom"}));
}

}  // namespace
}  // namespace fovea::program

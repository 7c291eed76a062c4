// Presets: their grids are those of the published tables, and an unknown name is refused with the nearest one.
#include "program/bench/presets.h"

#include <gtest/gtest.h>

#include <set>

#include "fovea/error.h"
#include "program/report_published.h"

namespace fovea::program {
namespace {

std::set<std::string> measurements(const std::vector<verification::AttentionCase>& cases) {
  std::set<std::string> set;
  for (const verification::AttentionCase& c : cases) set.insert(measurement_of(c));
  return set;
}

TEST(Presets, FullGridsEqualThePublishedTables) {
  for (const PublishedReport& report : published_reports()) {
    std::set<std::string> published;
    for (const PublishedFigure& figure : report.figures) published.insert(measurement_of(figure.problem));
    EXPECT_EQ(measurements(preset_cases(report.preset, Scale::full)), published) << report.preset;
  }
}

TEST(Presets, PublishedTablesHaveAllTheirRows) {
  std::vector<std::size_t> figures;
  for (const PublishedReport& report : published_reports()) figures.push_back(report.figures.size());
  EXPECT_EQ(figures, (std::vector<std::size_t>{48 * 3, 56 * 6, 20 * 2, 54 * 6, 96}));
}

TEST(Presets, QuickScaleIsACutOfFull) {
  for (const PublishedReport& report : published_reports()) {
    const auto full = measurements(preset_cases(report.preset, Scale::full));
    for (const std::string& one : measurements(preset_cases(report.preset, Scale::quick))) {
      EXPECT_TRUE(full.count(one)) << report.preset << ": " << one;
    }
  }
}

TEST(Presets, QuickIsACutOfAllReports) {
  const auto quick = measurements(preset_cases("quick", Scale::quick));
  for (const PublishedReport& report : published_reports()) {
    std::size_t shared = 0;
    for (const std::string& one : measurements(preset_cases(report.preset, Scale::full))) shared += quick.count(one);
    EXPECT_GT(shared, 0u) << report.preset;
  }
}

TEST(Presets, NoCaseTwice) {
  for (const Preset& preset : presets()) {
    const auto cases = preset_cases(preset.name, Scale::full);
    EXPECT_EQ(measurements(cases).size(), cases.size()) << preset.name;
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

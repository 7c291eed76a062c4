// Verdicts of `fovea compare`: no difference is claimed that the spreads do not carry.
#include "program/record/compare_records.h"

#include <gtest/gtest.h>

#include "made_records.h"

namespace fovea::tests {
namespace {

using namespace program;

struct VerdictCase {
  const char* name;
  std::vector<double> before, after;
  Verdict wanted;
  const char* says;
};

void PrintTo(const VerdictCase& c, std::ostream* out) { *out << c.name; }

const VerdictCase kVerdicts[] = {
    {"equal", {1, 1.01, 0.99, 1}, {1, 1.01, 0.99, 1}, Verdict::same, "0.0 % apart"},
    {"tiny_change_of_quiet_cells", {1, 1, 1, 1}, {1.004, 1.004, 1.004, 1.004}, Verdict::same, "0.4 %"},
    {"clearly_slower", {1, 1.01, 0.99, 1}, {1.2, 1.21, 1.19, 1.2}, Verdict::slower, "20.0 % apart"},
    {"clearly_faster", {1, 1.01, 0.99, 1}, {0.8, 0.81, 0.79, 0.8}, Verdict::faster, "20.0 % apart"},
    {"medians_in_each_others_interval", {1, 1.02, 0.98, 1.02, 0.98}, {1.01, 0.99, 1.03, 0.99, 1.03}, Verdict::same, ""},
    {"intervals_overlap", {1, 1.03, 0.97, 1.03, 0.97}, {1.04, 1.02, 1.06, 1.02, 1.06}, Verdict::unclear, "overlap"},
    {"gap_within_the_spread", {1, 1, 1, 1}, {1.05, 1.01, 1.09, 1.01, 1.09}, Verdict::unclear, "within the spreads"},
    {"noise_hides_everything", {1, 2, 0.5, 1.5}, {1, 2, 0.5, 1.5}, Verdict::unclear, "too noisy"},
    {"far_apart_though_noisy", {1, 1.2, 0.9, 1.1}, {3, 3.4, 2.9, 3.1}, Verdict::slower, ""},
    {"two_samples", {1, 1}, {2, 2, 2}, Verdict::unclear, "2 samples, wanted 3"},
    {"one_sample", {1, 1, 1}, {2}, Verdict::unclear, "1 sample, wanted 3"},
};

class Verdicts : public testing::TestWithParam<VerdictCase> {};

TEST_P(Verdicts, FollowFromTheSpreads) {
  const Judgement judgement =
      judge(made_row("b=1", "flash", GetParam().before), made_row("b=1", "flash", GetParam().after));
  EXPECT_EQ(to_string(judgement.verdict), to_string(GetParam().wanted)) << judgement.reason;
  EXPECT_NE(judgement.reason.find(GetParam().says), std::string::npos) << judgement.reason;
}

TEST_P(Verdicts, AreInvertedIfTheFilesAreSwapped) {
  const Judgement judgement =
      judge(made_row("b=1", "flash", GetParam().after), made_row("b=1", "flash", GetParam().before));
  const Verdict wanted = GetParam().wanted == Verdict::faster   ? Verdict::slower
                         : GetParam().wanted == Verdict::slower ? Verdict::faster
                                                                : GetParam().wanted;
  EXPECT_EQ(to_string(judgement.verdict), to_string(wanted)) << judgement.reason;
}

INSTANTIATE_TEST_SUITE_P(, Verdicts, testing::ValuesIn(kVerdicts),
                         [](const auto& one) { return std::string(one.param.name); });

Records records_of(std::vector<Row> rows, Environment environment = made_environment()) {
  Records records;
  records.environments = {std::move(environment)};
  records.environment_of_row.assign(rows.size(), 0);
  records.rows = std::move(rows);
  return records;
}

TEST(CompareRecords, ImpossibleTimesGetNoVerdictAndNoMean) {
  Row row = made_row("b=1", "flash", {1e-9, 1e-9, 1e-9});
  row.flags = {"impossible"};
  const Records a = records_of({made_row("b=1", "flash", {1, 1, 1})}), b = records_of({row});
  const Comparison comparison = compare_records(a, b, false);
  EXPECT_EQ(comparison.count(Verdict::unclear), 1);
  EXPECT_TRUE(geometric_means(comparison).empty());
}

// As two runs of `make bench` of one build gave: steady within each run, 7 % apart.
TEST(CompareRecords, RunsOfOneBuildAreNotFasterOrSlower) {
  Environment environment = made_environment();
  environment.source_digest = "8e1f";
  const Records a = records_of({made_row("b=1", "x", {1, 1, 1, 1})}, environment);
  const Records b = records_of({made_row("b=1", "x", {0.93, 0.93, 0.93, 0.93})}, environment);
  const Comparison one_build = compare_records(a, b, false);
  EXPECT_EQ(one_build.count(Verdict::unclear), 1) << one_build.cells[0].judgement.reason;
  EXPECT_TRUE(geometric_means(one_build).empty()) << "an unclear cell has no part in a mean";
  environment.source_digest = "another";
  EXPECT_EQ(compare_records(a, records_of(b.rows, environment), false).count(Verdict::faster), 1);
}

// Older records have no digest: a commit without changes tells the build.
TEST(CompareRecords, RunsOfOneCommitWithoutADigestAreOfOneBuild) {
  Environment environment = made_environment();
  environment.source_digest = "";
  environment.source = {.commit = "55ef96c574aa", .dirty = false};
  const std::vector<Row> before{made_row("b=1", "x", {1, 1, 1, 1})}, after{made_row("b=1", "x", {1.2, 1.2, 1.2, 1.2})};
  const Records a = records_of(before, environment);
  EXPECT_EQ(compare_records(a, records_of(after, environment), false).count(Verdict::unclear), 1);
  environment.source.dirty = true;
  EXPECT_EQ(
      compare_records(records_of(before, environment), records_of(after, environment), false).count(Verdict::slower),
      1);
}

TEST(CompareRecords, AGapWithinTheSpreadBetweenRunsIsUnclear) {
  const Records a = records_of({made_row("b=1", "x", {1, 1, 1})}),
                b = records_of({made_row("b=1", "x", {0.9, 0.9, 0.9})}, environment_of_another_commit());
  const Records close = records_of({made_row("b=1", "x", {1.05, 1.05, 1.05})}),
                far = records_of({made_row("b=1", "x", {1.12, 1.12, 1.12})});
  EXPECT_EQ(compare_records(a, b, false, {close}).count(Verdict::faster), 1);
  EXPECT_EQ(compare_records(a, b, false, {close, far}).count(Verdict::unclear), 1);
}

// 30 turns of ten samples of 2 ms: most samples differ, but slow turns of A are as fast as fast turns of B.
TEST(CompareRecords, OverlappingTurnsAreUnclear) {
  std::vector<double> before, after;
  for (int turn = 0; turn < 30; ++turn) {
    for (int n = 0; n < 10; ++n) {
      before.push_back(turn % 5 == 0 ? 2.2e-3 : 2.0e-3);
      after.push_back(turn % 5 == 0 ? 2.0e-3 : 2.2e-3);
    }
  }
  EXPECT_EQ(judge(made_row("b=1", "x", before), made_row("b=1", "x", after)).verdict, Verdict::unclear);
}

TEST(CompareRecords, GeometricMeansByImplementationAndOverAll) {
  const Records a =
      records_of({made_row("b=1", "x", {1, 1, 1}), made_row("b=2", "x", {1, 1, 1}), made_row("b=1", "y", {2, 2, 2})});
  const Records b =
      records_of({made_row("b=1", "x", {2, 2, 2}), made_row("b=2", "x", {8, 8, 8}), made_row("b=1", "y", {1, 1, 1})},
                 environment_of_another_commit());
  const auto means = geometric_means(compare_records(a, b, false));
  EXPECT_NEAR(means.at("x").ratio, 4, 1e-12);
  EXPECT_EQ(means.at("x").cells, 2);
  EXPECT_NEAR(means.at("y").ratio, 0.5, 1e-12);
  EXPECT_NEAR(means.at("").ratio, 2, 1e-12);
  EXPECT_EQ(means.at("").cells, 3);
}

TEST(CompareRecords, ListsUnpairedRowsAndChangedStatuses) {
  const Records a = records_of({made_row("b=1", "x", {1, 1, 1}), made_row("b=2", "x", {1, 1, 1}),
                                failed_row("b=3", "x", "oom"), failed_row("b=4", "x", "oom")});
  const Records b = records_of({failed_row("b=1", "x", "crashed"), made_row("b=3", "x", {1, 1, 1}),
                                failed_row("b=4", "x", "oom"), made_row("b=5", "x", {1, 1, 1})});
  const Comparison comparison = compare_records(a, b, false);
  EXPECT_TRUE(comparison.cells.empty());
  ASSERT_EQ(comparison.status_changes.size(), 2u);
  EXPECT_EQ(comparison.status_changes[0].second->status, "crashed");
  ASSERT_EQ(comparison.only_a.size(), 1u);
  EXPECT_EQ(comparison.only_a[0]->problem, "op=attention b=2");
  ASSERT_EQ(comparison.only_b.size(), 1u);
  EXPECT_EQ(comparison.only_b[0]->problem, "op=attention b=5");
  EXPECT_TRUE(comparison.any_slower()) << "a time was lost";
}

TEST(CompareRecords, NamesEveryDifferentCondition) {
  Environment other = made_environment();
  other.machine = "Another processor";
  other.facts["build"] = "Debug";
  other.facts["compiler"] = "Clang 14";
  Row row = made_row("b=1", "x", {1, 1, 1});
  const Records a = records_of({row});
  row.threads = 2;
  row.machine = other.machine;
  const Records b = records_of({row}, other);
  const auto differences = condition_differences(a, b);
  ASSERT_EQ(differences.size(), 4u);
  for (const char* word : {"machine: `A processor", "threads: `1` in A, `2` in B", "GNU 12.2.0", "`Debug` in B"}) {
    EXPECT_TRUE(std::any_of(differences.begin(), differences.end(), [word](const std::string& difference) {
      return difference.find(word) != std::string::npos;
    })) << word;
  }
  EXPECT_TRUE(condition_differences(a, a).empty());
  EXPECT_TRUE(compare_records(a, b, false).cells.empty());
  EXPECT_EQ(compare_records(a, b, true).cells.size(), 1u) << "forced: one thread count each";
}

TEST(CompareRecords, NotesAChangedClock) {
  Row before = made_row("b=1", "x", {1, 1, 1}), after = before;
  before.clock_mhz = 3000;
  after.clock_mhz = 2400;
  const Records a = records_of({before}), b = records_of({after});
  const Comparison comparison = compare_records(a, b, false);
  ASSERT_EQ(comparison.notes.size(), 1u);
  EXPECT_NE(comparison.notes[0].find("20.0 % lower"), std::string::npos) << comparison.notes[0];
  EXPECT_TRUE(compare_records(a, a, false).notes.empty());
}

}  // namespace
}  // namespace fovea::tests

// Observations follow the rows: other rows, other sentences.
#include "fixture.h"
#include "program/report_observations.h"

namespace fovea::program {
namespace {

std::string all_of(const Study& study) {
  std::string text = headline_of(study) + "\n";
  for (const std::string& said : observations_of(study)) text += said + "\n";
  return text;
}

bool says(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

TEST(Observations, TheWinnerFollowsTheTimes) {
  const auto with = [](double naive, double own) {
    return all_of(study_of({timed(kAt + "512", "naive", naive), timed(kAt + "512", "cpu.avx2", own)}));
  };
  EXPECT_TRUE(says(with(2e-3, 1e-3), "cpu.avx2 in 1")) << with(2e-3, 1e-3);
  EXPECT_TRUE(says(with(2e-3, 1e-3), "2.00\u00d7 the speed of naive"));
  EXPECT_TRUE(says(with(2e-3, 1e-3), "slower in none"));
  EXPECT_TRUE(says(with(1e-3, 4e-3), "naive in 1"));
  EXPECT_TRUE(says(with(1e-3, 4e-3), "0.250\u00d7 the speed of naive"));
  EXPECT_TRUE(says(with(1e-3, 4e-3), "slower in 1"));
}

TEST(Observations, ComparesWithTheFastestOther) {
  const Study study = study_of(
      {timed(kAt + "512", "naive", 9e-3), timed(kAt + "512", "fused", 1e-3), timed(kAt + "512", "cpu.avx2", 2e-3)});
  EXPECT_TRUE(says(all_of(study), "cpu.avx2 against the fastest of the others: 0.500\u00d7")) << all_of(study);
}

TEST(Observations, EachTypeIsComparedWithFused) {
  std::vector<Row> rows;
  for (const auto& [length, own] : {std::pair{"512", 2e-3}, std::pair{"1k", 0.5e-3}}) {
    for (const auto& [type, factor] : {std::pair{" dtype=fp32", 1.0}, std::pair{" dtype=bf16", 0.1}}) {
      rows.push_back(timed(kAt + length + type, "fused", 1e-3));
      rows.push_back(timed(kAt + length + type, "cpu.avx2", factor * own));
    }
  }
  const std::string text = all_of(study_of(rows));
  EXPECT_TRUE(says(text, "cpu.avx2, fp32: slower than fused in 1 of 2 forward cells; least 0.500\u00d7 (length 512,"))
      << text;
  EXPECT_TRUE(says(text, "cpu.avx2, bf16: slower than fused in none of 2 forward cells; least 5.00\u00d7 (length 512,"))
      << text;
}

TEST(Observations, FailuresAndFlagsAreCounted) {
  std::vector<Row> rows = every_status();
  rows.push_back(timed(kAt + "4k", "naive", 1e-9, {"impossible"}));
  const std::string text = all_of(study_of(rows));
  EXPECT_TRUE(says(text, "fused: OOM in 1 cell, first at length 2k")) << text;
  EXPECT_TRUE(says(text, "fused: mismatch in 1 cell"));
  EXPECT_TRUE(says(text, "1 of 13 cells flagged impossible"));
  EXPECT_FALSE(says(all_of(study_of({timed(kAt + "512", "naive", 1e-3)})), "OOM"));
}

TEST(Observations, GrowthIsFitted) {
  EXPECT_TRUE(says(all_of(study_of(every_status())), "naive n^2.00"));
  const auto with = [](std::vector<std::string> flags) {
    return all_of(study_of({timed(kAt + "256", "naive", 1e-3), timed(kAt + "512", "naive", 4e-3),
                            timed(kAt + "1k", "naive", 16e-3, std::move(flags))}));
  };
  EXPECT_TRUE(says(with({}), "naive n^2.00.")) << with({});
  EXPECT_TRUE(says(with({"noisy"}), "naive n^2.00; some of these times are noisy.")) << with({"noisy"});
}

TEST(Observations, SumsAreCompared) {
  const auto with = [](double both) {
    return all_of(study_of({timed(kAt + "512 pass=fwd", "naive", 1e-3), timed(kAt + "512 pass=bwd", "naive", 2e-3),
                            timed(kAt + "512 pass=e2e", "naive", both)}));
  };
  EXPECT_TRUE(says(with(3e-3), "in 1 of 1 cell")) << with(3e-3);
  EXPECT_TRUE(says(with(2e-3), "in 0 of 1 cell"));
}

// No sentence on times of a run counts them; each way has its own.
TEST(Observations, CallsInAGraphAndTheHostsTimeHaveTheirOwn) {
  const std::string text = all_of(study_of(three_ways(), "torch.flash"));
  EXPECT_TRUE(says(text, "1 configuration by 2 implementations")) << text;
  EXPECT_TRUE(says(text, "cuda.any, forward: 0.800\u00d7 the speed of torch.flash")) << text;
  EXPECT_TRUE(says(text,
                   "In a graph of dependent calls cuda.any takes 5.00 to 5.00 us forward in 1 cell; slower than "
                   "another in none."))
      << text;
  EXPECT_TRUE(says(text,
                   "A call of cuda.any keeps the host at most 4.25 us in 1 cell; beyond its launches at most "
                   "0.750 us (forward at length 512"))
      << text;
  EXPECT_TRUE(says(text, ", with a workspace of the library's pool at most 1.25 us.")) << text;
}

TEST(Observations, TheWorstErrorIsNamed) {
  std::vector<Row> rows = every_status();
  rows[1].error["out"].ratio_to_plain = 1.75;
  EXPECT_TRUE(says(all_of(study_of(rows)), "at most 1.75\u00d7 that of a plain evaluation")) << all_of(study_of(rows));
}

TEST(Observations, NothingIsSaidOfNoRows) { EXPECT_TRUE(observations_of(study_of({})).empty()); }

}  // namespace
}  // namespace fovea::program

// The table of limits: which cells run, and which value of a cell is judged.
#include "program/bench/limits.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "made_records.h"
#include "program/terminal_text.h"
#include "run_program.h"
#include "verification/problem_line.h"

namespace fovea::program {
namespace {

const RunCeilings kCeilings{{1, {{"read_bandwidth", 2e9}, {"fma_fp32", 8e9}, {"fma_fp32_avx2", 4e9}}},
                            {2, {{"read_bandwidth", 4e9}}}};

// A timed row of one problem, with a peak of 1 GFLOP/s.
Row timed(const std::string& words, const std::string& implementation, int threads, double seconds) {
  Row row = tests::made_row("", implementation, {seconds, seconds, seconds});
  row.problem = verification::line_of(verification::parse_case(words));
  row.threads = threads;
  row.flops = 1e6;
  row.bytes = 1e6;
  row.ceiling = RowCeiling{.flops_per_s = 1e9, .probe_before = 1e9, .probe_after = 1e9};
  row.ceiling_share = row.flops / seconds / 1e9;
  return row;
}

Limit limit(Measure measure, double must, double aim) {
  return {"one limit", measure, "lq=64 d=16 dtype=fp32,fp16", "cpu.scalar", 2, must, aim};
}

TEST(Limits, TheWorstCellCounts) {
  const std::vector<Row> rows{timed("lq=64 d=16 dtype=fp32", "cpu.scalar", 2, 2e-3),
                              timed("lq=64 d=16 dtype=fp16", "cpu.scalar", 2, 1.25e-3)};
  const Reached got = reached(limit(Measure::peak, 0.6, 0.7), Scale::full, rows, kCeilings);
  EXPECT_DOUBLE_EQ(got.value, 0.5);
  EXPECT_EQ(got.problem, rows[0].problem);
  EXPECT_EQ(got.cells, 2);
  EXPECT_EQ(got.short_of_must, 1);
  EXPECT_EQ(got.missing, 0);
}

TEST(Limits, EachMeasureHasItsOwnRows) {
  const std::vector<Row> rows{
      timed("lq=64 d=16 dtype=fp32", "cpu.scalar", 2, 2e-3), timed("lq=64 d=16 dtype=fp16", "cpu.scalar", 2, 4e-3),
      timed("lq=64 d=16 dtype=fp32", "cpu.scalar", 1, 3e-3), timed("lq=64 d=16 dtype=fp16", "cpu.scalar", 1, 7e-3),
      timed("lq=64 d=16 dtype=fp32", "naive", 2, 3e-3),      timed("lq=64 d=16 dtype=fp16", "naive", 2, 9e-3),
      timed("lq=64 d=16 dtype=fp16", "fused", 2, 5e-3),      timed("lq=64 d=16 dtype=fp16", "fused", 1, 1e-3)};
  const auto worst = [&rows](Measure measure) {
    return reached(limit(measure, 0, 0), Scale::full, rows, kCeilings).value;
  };
  EXPECT_DOUBLE_EQ(worst(Measure::seconds), 4e-3);
  EXPECT_DOUBLE_EQ(worst(Measure::peak), 0.25);
  EXPECT_DOUBLE_EQ(worst(Measure::bound), 0.25);  // 1 ms of multiply-adds, 0.25 ms of reading
  EXPECT_DOUBLE_EQ(worst(Measure::threads), 1.5);
  EXPECT_DOUBLE_EQ(worst(Measure::baselines), 1.25);
  EXPECT_DOUBLE_EQ(worst(Measure::points_of_fp32), 0.25);
}

TEST(Limits, HalfAsWideVectorsHaveTheirOwnPeak) {
  const Row row = timed("lq=64 d=16", "cpu.scalar", 1, 2.5e-3);  // 0.4 of a peak that is twice the other one
  Limit one{"one", Measure::peak_of_avx2, "lq=64 d=16", "cpu.scalar", 1, 0.7, 0.9};
  EXPECT_DOUBLE_EQ(reached(one, Scale::full, {row}, kCeilings).value, 0.8);
  EXPECT_DOUBLE_EQ(reached(one, Scale::full, {row}, {}).value, 0.4);
}

TEST(Limits, TheBandwidthOfTheSameThreadsBoundsAReader) {
  Row row = timed("lq=64 d=16", "cpu.scalar", 1, 1e-3);
  row.bytes = 1.8e6;
  row.flops = 1;
  Limit one{"one", Measure::bound, "lq=64 d=16", "cpu.scalar", 1, 0.8, 0.9};
  EXPECT_DOUBLE_EQ(reached(one, Scale::full, {row}, kCeilings).value, 0.9);
  EXPECT_EQ(reached(one, Scale::full, {row}, {}).missing, 1);
}

TEST(Limits, ACellWithoutATimeIsShort) {
  Limit one = limit(Measure::peak, 0.1, 0.2);
  std::vector<Row> rows{timed("lq=64 d=16 dtype=fp32", "cpu.scalar", 2, 2e-3),
                        timed("lq=64 d=16 dtype=fp16", "cpu.scalar", 2, 2e-3)};
  rows[1].fail("oom", "made to fail");
  EXPECT_EQ(reached(one, Scale::full, rows, kCeilings).missing, 1);
  EXPECT_NE(limits_text({one}, Scale::full, rows, kCeilings).find("1 of 2"), std::string::npos);
  const std::string nothing = limits_text({one}, Scale::full, {}, kCeilings);
  EXPECT_NE(nothing.find("none"), std::string::npos) << nothing;
  EXPECT_NE(nothing.find("2 of 2"), std::string::npos) << nothing;
  EXPECT_EQ(nothing.find("Every must is met"), std::string::npos) << nothing;
}

TEST(Limits, RunsHoldEveryCellOnceWithWhatItIsComparedTo) {
  for (const Scale scale : {Scale::quick, Scale::full}) {
    std::set<std::string> seen;
    for (const LimitRun& run : runs_of(cpu_limits(), scale)) {
      for (const verification::Case& c : run.cases) {
        std::string cell = std::to_string(run.threads) + " " + verification::line_of(c);
        for (const std::string& name : run.implementations) cell += " " + name;
        EXPECT_TRUE(seen.insert(cell).second) << cell;
      }
    }
    const auto has = [&seen](const char* words) {
      return std::any_of(seen.begin(), seen.end(),
                         [&](const std::string& cell) { return cell.find(words) != std::string::npos; });
    };
    EXPECT_TRUE(has("1 op=attention pass=fwd b=1 hq=16 hkv=16 lq=2048"));  // for the factor of two threads
    EXPECT_TRUE(has("naive vectorized fused"));
    EXPECT_TRUE(has("cpu.avx2"));
  }
}

TEST(Limits, TheTablesFitATerminal) {
  for (const auto& limits : {cpu_limits(), amx_limits()}) {
    std::istringstream text(limits_text(limits, Scale::quick, {}, kCeilings));
    for (std::string line; std::getline(text, line);) EXPECT_LE(columns_of(line), kTerminalColumns) << line;
  }
}

TEST(Limits, AimsAreNoLooserThanMusts) {
  for (const auto& limits : {cpu_limits(), amx_limits()}) {
    for (const Limit& one : limits) {
      const bool small = one.measure == Measure::seconds || one.measure == Measure::points_of_fp32;
      EXPECT_TRUE(small ? one.aim <= one.must : one.aim >= one.must) << one.title;
    }
  }
}

TEST(Limits, AFactorOverPyTorchNeedsItsRow) {
  Limit one = limit(Measure::pytorch, 1.5, 1.5);
  one.line = "lq=64 d=16 dtype=fp32";
  std::vector<Row> rows{timed("lq=64 d=16 dtype=fp32", "cpu.scalar", 2, 2e-3)};
  EXPECT_EQ(reached(one, Scale::full, rows, kCeilings).missing, 1);
  rows.push_back(timed("lq=64 d=16 dtype=fp32", "torch.sdpa", 1, 9e-3));  // of another number of threads
  EXPECT_EQ(reached(one, Scale::full, rows, kCeilings).missing, 1);
  rows.push_back(timed("lq=64 d=16 dtype=fp32", "torch.sdpa", 2, 3e-3));
  const Reached got = reached(one, Scale::full, rows, kCeilings);
  EXPECT_DOUBLE_EQ(got.value, 1.5);
  EXPECT_EQ(got.short_of_must + got.missing, 0);
}

TEST(Limits, OptionsThatTheLimitsSetAreRefused) {
  for (const char* option : {"--threads", "--impl", "--passes", "--device"}) {
    const std::string value = option == std::string("--threads")  ? "2"
                              : option == std::string("--impl")   ? "flash"
                              : option == std::string("--passes") ? "fwd"
                                                                  : "cpu";
    const tests::Ended run = tests::fovea({"bench", "--preset", "cpu-limits", option, value});
    EXPECT_EQ(run.code, 2) << option;
    EXPECT_NE(run.err.find("limits"), std::string::npos) << run.err;
  }
}

}  // namespace
}  // namespace fovea::program

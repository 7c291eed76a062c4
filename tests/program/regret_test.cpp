// The regret of the library's choice among the implementations that were timed.
#include "program/bench/regret.h"

#include <gtest/gtest.h>

#include <string>

#include "made_records.h"
#include "run_program.h"
#include "verification/problem_line.h"

namespace fovea::tests {
namespace {

using program::Contender;
using program::Row;

Row timed(const verification::Case& c, const std::string& name, double seconds) {
  Row row;
  row.problem = verification::line_of(c), row.impl = name, row.status = "ok";
  row.time_s = program::TimeStatistics{.median = seconds};
  return row;
}

const Contender kFlash{.name = "flash", .ours = true}, kScalar{.name = "cpu.scalar", .ours = true},
    kNaive{.name = "naive", .ours = true};

// What `flash` becomes here.
std::string chosen_for(const verification::Case& c) { return program::plan_cell(kFlash, c).implementation; }

TEST(Regret, IsTheTimeOfTheChoiceOverTheLeastTime) {
  const verification::Case one = verification::parse_case("lq=64 d=16"), other = verification::parse_case("lq=65 d=16");
  const std::string chosen = chosen_for(one);
  if (chosen == "cpu.scalar") GTEST_SKIP() << "nothing but cpu.scalar runs here";
  const std::vector<Row> rows{timed(one, chosen, 2), timed(one, "cpu.scalar", 1), timed(one, "naive", 0.1),
                              timed(other, chosen, 1), timed(other, "cpu.scalar", 3)};
  const std::string text = program::regret_summary({kFlash, kScalar, kNaive}, {one, other}, rows);
  EXPECT_NE(text.find("geometric mean 1.414 over 2 problems, worst 2.000\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  2.000  " + chosen + "  not cpu.scalar  pass=fwd lq=64 d=16"), std::string::npos) << text;
  EXPECT_EQ(text.find("lq=65"), std::string::npos) << text;
}

TEST(Regret, NeedsTheChoiceAndAnotherThatItCouldTake) {
  const verification::Case one = verification::parse_case("lq=64 d=16");
  const std::vector<Row> rows{timed(one, chosen_for(one), 2), timed(one, "cpu.scalar", 1), timed(one, "naive", 0.1)};
  EXPECT_EQ(program::regret_summary({kScalar, kNaive}, {one}, rows), "");  // no choice
  EXPECT_EQ(program::regret_summary({kFlash, kNaive}, {one}, rows), "");   // a baseline is never chosen
}

TEST(Regret, IsPrintedByABench) {
  const Ended run = fovea({"bench", "--problem", "lq=64 d=16", "--impl", "flash,cpu.scalar", "--repeat-for", "0.01"});
  if (run.out.find("flash: cpu.scalar") != std::string::npos) GTEST_SKIP() << "nothing but cpu.scalar runs here";
  EXPECT_NE(run.out.find("regret of the choice: geometric mean 1."), std::string::npos) << run.out;
}

}  // namespace
}  // namespace fovea::tests

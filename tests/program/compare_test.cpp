// fovea compare from outside: exit codes, refusals, what is printed.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "made_records.h"
#include "program/terminal_text.h"
#include "run_program.h"

namespace fovea::tests {
namespace {

using program::Environment;
using program::Row;

class CompareVerb : public testing::Test {
 protected:
  void SetUp() override {
    write_text(a_, text_of(made_environment(), {row(1.0)}));
    write_text(slower_, text_of(environment_of_another_commit(), {row(1.5)}));
  }
  static Row row(double factor) {
    return made_row("b=1", "flash", {1e-3 * factor, 1.01e-3 * factor, 0.99e-3 * factor});
  }

  Folder folder_;
  std::string a_ = folder_ / "a.jsonl", slower_ = folder_ / "slower.jsonl", other_ = folder_ / "other.jsonl";
};

TEST_F(CompareVerb, PrintsSlowerAndFailsOnlyOnRequest) {
  const Ended plain = fovea({"compare", a_, slower_});
  EXPECT_EQ(plain.code, 0) << plain.err;
  EXPECT_NE(plain.out.find("1.500  slower"), std::string::npos) << plain.out;
  EXPECT_NE(plain.out.find("0 same, 0 faster, 1 slower, 0 unclear"), std::string::npos) << plain.out;
  EXPECT_EQ(fovea({"compare", a_, slower_, "--fail-on", "slower"}).code, 1);
  EXPECT_EQ(fovea({"compare", slower_, a_, "--fail-on", "slower"}).code, 0);
  EXPECT_EQ(fovea({"compare", a_, a_, "--fail-on", "slower"}).code, 0);
}

TEST_F(CompareVerb, NamesThreadsWhereTheyTellRowsApart) {
  std::vector<Row> rows{row(1.0), row(1.0)};
  rows[0].threads = 1;
  rows[1].threads = 2;
  write_text(a_, text_of(made_environment(), rows));
  const Ended run = fovea({"compare", a_, a_});
  EXPECT_NE(run.out.find("threads"), std::string::npos) << run.out;
}

TEST_F(CompareVerb, SaysEquallyFastOfEqualTimes) {
  write_text(a_, text_of(made_environment(), {row(1.0)}));
  const Ended run = fovea({"compare", a_, a_});
  EXPECT_NE(run.out.find("equally fast"), std::string::npos) << run.out;
}

TEST_F(CompareVerb, Fits80ColumnsAndTakesMoreRuns) {
  std::vector<Row> before, after;
  for (const char* problem : {"pass=fwd b=1 hq=12 lq=1024 d=64 dtype=fp16 mask=causal",
                              "pass=bwd b=8 hq=1 lq=256 d=128 dtype=fp32 mask=none"}) {
    before.push_back(made_row(problem, "cpu.avx512", {1e-3, 1.01e-3, 0.99e-3}));
    after.push_back(made_row(problem, "cpu.avx512", {1.2e-3, 1.21e-3, 1.19e-3}));
  }
  write_text(a_, text_of(made_environment(), before));
  write_text(slower_, text_of(environment_of_another_commit(), after));
  const Ended alone = fovea({"compare", a_, slower_}), again = fovea({"compare", a_, slower_, "--again", slower_});
  for (const std::string& out : {alone.out, again.out}) {
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("A: ") && !line.starts_with("B: ")) {
        EXPECT_LE(program::columns_of(line), 80U) << line;
      }
    }
  }
  EXPECT_NE(alone.out.find("A is 1.200× as fast"), std::string::npos) << alone.out;
  EXPECT_NE(again.out.find("runs of one build are 20.0 % apart"), std::string::npos) << again.out;
  EXPECT_EQ(again.out.find("geometric mean"), std::string::npos) << again.out;
}

TEST_F(CompareVerb, AMissingTimeFailsToo) {
  write_text(other_, text_of(made_environment(), {failed_row("b=1", "flash", "crashed")}));
  const Ended outcome = fovea({"compare", a_, other_, "--fail-on", "slower"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.out.find("ok -> crashed: made to fail"), std::string::npos) << outcome.out;
}

TEST_F(CompareVerb, ControlCharactersOfRecordsAreEscaped) {
  Row failed = failed_row("b=1", "flash", "crashed");
  failed.reason = "\033[31mred\nrum";
  write_text(other_, text_of(made_environment(), {failed}));
  const Ended outcome = fovea({"compare", a_, other_});
  EXPECT_NE(outcome.out.find("\\x1b[31mred\\nrum\n"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find('\033'), std::string::npos);
}

TEST_F(CompareVerb, PrintsTheSameAsJson) {
  const Ended outcome = fovea({"compare", a_, slower_, "--json"});
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json.at("schema"), "fovea.compare/1");
  ASSERT_EQ(json.at("cells").size(), 1u);
  EXPECT_EQ(json["cells"][0].at("verdict"), "slower");
  EXPECT_NEAR(json["cells"][0].at("ratio").get<double>(), 1.5, 1e-9);
  EXPECT_EQ(json.at("geometric_means").size(), 2u);
  EXPECT_TRUE(json.at("differences").empty());
}

TEST_F(CompareVerb, DifferentMachinesNeedForce) {
  Environment environment = made_environment();
  environment.machine = "Another processor";
  Row moved = row(1.0);
  moved.machine = environment.machine;
  write_text(other_, text_of(environment, {moved}));
  const Ended refused = fovea({"compare", a_, other_});
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.out, "");
  for (const char* word : {"Another processor", "A processor", "--force"})
    EXPECT_NE(refused.err.find(word), std::string::npos) << refused.err;
  const Ended forced = fovea({"compare", a_, other_, "--force"});
  EXPECT_EQ(forced.code, 0);
  EXPECT_NE(forced.err.find("Another processor"), std::string::npos) << "the differences are listed all the same";
  EXPECT_NE(forced.out.find("1 same"), std::string::npos) << forced.out;
}

TEST_F(CompareVerb, TooFewSamplesGiveNoVerdict) {
  write_text(other_, text_of(made_environment(), {made_row("b=1", "flash", {5e-3})}));
  const Ended outcome = fovea({"compare", a_, other_, "--fail-on", "slower"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.out.find("1 unclear"), std::string::npos) << outcome.out;
}

TEST_F(CompareVerb, BadInputExitsWithTwo) {
  EXPECT_EQ(fovea({"compare", a_, folder_ / "missing.jsonl"}).code, 2);
  EXPECT_EQ(fovea({"compare", folder_ / ".", a_}).code, 2);
  write_text(other_, "");
  EXPECT_EQ(fovea({"compare", a_, other_}).code, 2);
  write_text(other_, text_of(made_environment(), {}));
  EXPECT_EQ(fovea({"compare", a_, other_, "--force"}).code, 2) << "nothing in common";
  const std::string whole = text_of(made_environment(), {row(1.0), row(1.0)});
  const std::size_t second = whole.find('\n') + 1;
  std::string damaged = whole;
  damaged[second + 5] = '\x02';
  write_text(other_, damaged);
  const Ended outcome = fovea({"compare", a_, other_});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("byte " + std::to_string(second)), std::string::npos) << outcome.err;
}

TEST_F(CompareVerb, TornLastLineIsAWarning) {
  std::string torn = text_of(made_environment(), {row(1.0), made_row("b=2", "flash", {1, 1, 1})});
  torn.resize(torn.size() - 10);
  write_text(other_, torn);
  const Ended outcome = fovea({"compare", a_, other_});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.err.find("not finished"), std::string::npos) << outcome.err;
  EXPECT_EQ(read_text(other_), torn) << "comparing does not repair";
}

}  // namespace
}  // namespace fovea::tests

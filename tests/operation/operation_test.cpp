// An operation that the sources do not know is parsed, verified, shrunk, benched, explained, compared and
// reported all the same.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "operation/row_scaling.h"
#include "run_program.h"
#include "verification/differential.h"
#include "verification/problem_line.h"

namespace fovea::tests {
namespace {

using nlohmann::json;

class RowScaling : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (verification::find_operation("row_scaling") == nullptr) verification::register_operation(row_scaling());
  }
};

TEST_F(RowScaling, LinesFollowFromItsKeys) {
  const verification::Case c = verification::parse_case("op=row_scaling rows=4k dtype=bf16 seed=3");
  EXPECT_EQ(verification::line_of(c),
            "op=row_scaling pass=fwd rows=4096 cols=4096 dtype=bf16 device=cpu data=normal place=contiguous seed=3");
  EXPECT_EQ(verification::parse_sweep("op=row_scaling rows=1,2 cols=3,4 pass=fwd,bwd").size(), 8u);
  const Ended refused = fovea({"explain", "--problem", "op=row_scaling row=3"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("did you mean `rows`?"), std::string::npos) << refused.err;
  EXPECT_NE(fovea({"explain", "--problem", "op=row_scalin"}).err.find("did you mean `row_scaling`?"),
            std::string::npos);
}

TEST_F(RowScaling, RandomCasesAreVerified) {
  const Ended run = fovea({"verify", "--op", "row_scaling", "--impl", "rows.plain", "--cases", "300", "--json"});
  EXPECT_EQ(run.code, 0) << run.out << run.err;
  const json summary = json::parse(run.out);
  EXPECT_EQ(summary["passed"], 300);
  EXPECT_EQ(summary["coverage"].size(), 6u);  // passes and types
}

TEST_F(RowScaling, AFailureShrinksToALineThatReplays) {
  const Ended run = fovea({"verify", "--op", "row_scaling", "--impl", "rows.short", "--cases", "40", "--json"});
  EXPECT_EQ(run.code, 1) << run.out << run.err;
  const json summary = json::parse(run.out);
  ASSERT_FALSE(summary["failures"].empty());
  const std::string line = summary["failures"][0]["shrunk"];
  EXPECT_NE(line.find(" rows=1 cols=7 dtype=fp32 "), std::string::npos) << line;
  EXPECT_NE(line.find(" data=normal place=contiguous "), std::string::npos) << line;
  EXPECT_EQ(fovea({"verify", "--impl", "rows.short", "--problem", line}).code, 1);
  EXPECT_EQ(fovea({"verify", "--impl", "rows.plain", "--problem", line}).code, 0);
}

TEST_F(RowScaling, IsBenchedRecordedAndCompared) {
  const Folder folder;
  const std::string a = folder / "a.jsonl", b = folder / "b.jsonl";
  for (const std::string& file : {a, b}) {
    const Ended run = fovea({"bench", "--problem", "op=row_scaling rows=64,256 pass=fwd,bwd,e2e", "--impl",
                             "rows.plain", "--repeat-for", "0.02", "-o", file});
    EXPECT_EQ(run.code, 0) << run.out << run.err;
    expect_valid_records(file);
    const auto rows = program::load_records(file).rows;
    ASSERT_EQ(rows.size(), 6u);
    for (const auto& row : rows) EXPECT_EQ(row.status, "ok") << row.reason;
    EXPECT_EQ(rows[2].error.size(), 3u);  // y, dx and ds
  }
  const Ended compared = fovea({"compare", a, b, "--json"});
  EXPECT_EQ(compared.code, 0) << compared.err;
  EXPECT_EQ(json::parse(compared.out)["cells"].size(), 6u);
}

TEST_F(RowScaling, IsReported) {
  const std::string python = FOVEA_SOURCE_FOLDER "/build/venv/bin/python";
  if (access(python.c_str(), X_OK) != 0) GTEST_SKIP() << "no Python with pandas: scripts/setup makes one";
  const Folder folder;
  const std::string records = folder / "run.jsonl", report = folder / "report";
  EXPECT_EQ(fovea({"bench", "--problem", "op=row_scaling rows=64,256 pass=fwd,bwd", "--impl", "rows.plain",
                   "--repeat-for", "0.01", "-o", records})
                .code,
            0);
  const Ended run = fovea({"report", records, "-o", report, "--no-pictures", "--python", python});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(read_text(report + "/report.md").find("| rows | rows.plain (ms) |"), std::string::npos);
}

TEST_F(RowScaling, AWrongAnswerIsNotTimed) {
  const auto rows = bench("op=row_scaling rows=8 cols=9", "rows.plain,rows.short", 1);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].status, "ok");
  EXPECT_EQ(rows[1].status, "mismatch");
}

TEST_F(RowScaling, ForeignKernelsAreRefused) {
  const auto rows = bench("op=row_scaling rows=8", bad_kernel("right"), 0);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].status, "unsupported") << rows[0].reason;
}

TEST_F(RowScaling, IsExplainedAndListed) {
  const Ended explained = fovea({"explain", "--problem", "op=row_scaling rows=8", "--json"});
  EXPECT_EQ(explained.code, 0) << explained.err;
  EXPECT_EQ(json::parse(explained.out)["chosen"], "rows.plain");
  EXPECT_NE(fovea({"bench", "--help"}).out.find("op=row_scaling"), std::string::npos);
  const json info = json::parse(fovea({"info", "--quick", "--json"}).out);
  const json& operations = info["operations"];
  const auto listed =
      std::find_if(operations.begin(), operations.end(), [](const json& one) { return one["name"] == "row_scaling"; });
  ASSERT_NE(listed, operations.end());
  EXPECT_EQ((*listed)["keys"][2], json({{"key", "cols"},
                                        {"kind", "count"},
                                        {"help", "columns"},
                                        {"default", "rows"},
                                        {"noun", "cols"},
                                        {"place", "title"},
                                        {"values", json::object()},
                                        {"follows", "rows"}}));
  const json& implementations = info["implementations"];
  EXPECT_TRUE(std::any_of(implementations.begin(), implementations.end(),
                          [](const json& one) { return one["name"] == "rows.short"; }));
  EXPECT_NE(fovea({"info", "--quick"}).out.find("implementations of row_scaling"), std::string::npos);
}

}  // namespace
}  // namespace fovea::tests

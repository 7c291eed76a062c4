// Terminals, pipes and files get what suits them; every verb helps and speaks JSON.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "program/bench/table.h"
#include "program/terminal_text.h"
#include "run_program.h"

namespace fovea::tests {
namespace {

const std::vector<std::string> kTwoCells = {"bench",        "--problem", "lq=4,8 d=8", "--impl", "reference",
                                            "--repeat-for", "0.01",      "--threads",  "1"};

TEST(Terminal, PlainTextElsewhere) {
  const Ended run = fovea(kTwoCells);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ((run.out + run.err).find('\033'), std::string::npos);
  EXPECT_EQ((run.out + run.err).find('\r'), std::string::npos);
  EXPECT_NE(run.err.find("[2/2]"), std::string::npos) << "a line for the last row: " << run.err;
}

// Every line has at most 80 columns; UTF-8 continuation bytes and escape sequences take none.
void expect_80_columns(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(program::columns_of(line), 80U) << line;
}

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

// The quick preset's keys and more implementations than fit side by side.
TEST(Terminal, ABenchFits80Columns) {
  const Ended run = fovea({"bench", "--problem", "hq=1,2 lq=4,8,12 d=8,16 mask=none,causal dtype=bf16,fp32", "--impl",
                           "flash,reference,cpu.scalar,naive,vectorized,fused", "--baseline", "reference",
                           "--repeat-for", "0.001", "--threads", "1", "--memory-limit", "1G"});
  EXPECT_EQ(run.code, 0) << run.err;
  expect_80_columns(run.out);
  expect_80_columns(run.err);
  EXPECT_NE(run.out.find("(1.00×)"), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find("place=contiguous"), std::string::npos) << "default values say nothing: " << run.out;
}

// Titles of tables that name every key of a layer, and more than one operation.
TEST(Terminal, ABenchOfLayersFits80Columns) {
  const Ended run = fovea({"bench", "--problem", "op=mha_fused pass=fwd,bwd,e2e b=2 hq=2 lq=4 d=64 dtype=bf16",
                           "--problem", "pass=fwd,bwd lq=4,8 d=8 mask=none,causal", "--impl", "naive,fused",
                           "--repeat-for", "0.001", "--threads", "1"});
  EXPECT_EQ(run.code, 0) << run.err;
  expect_80_columns(run.out);
  expect_80_columns(run.err);
  EXPECT_NE(run.err.find("op=attention pass="), std::string::npos) << run.err;
}

TEST(Terminal, ProblemsWithoutATimeFit80Columns) {
  const Ended run =
      fovea({"bench", "--problem", "pass=fwd b=8 hq=12 hkv=4 lq=8192,16384 d=128 dv=64 dtype=fp32 mask=causal",
             "--impl", "cpu.avx512_bf16", "--repeat-for", "0.01", "--threads", "1"});  // takes bf16 only
  EXPECT_TRUE(std::regex_search(run.err, std::regex("and 1\\s+more"))) << run.err;
  expect_80_columns(run.err);
}

// On a machine whose GPU runs the problem, the plan fits instead.
TEST(Terminal, ARefusalOfADeviceFits80Columns) {
  for (const char* verb : {"explain", "bench", "verify"}) {
    const Ended run = fovea({verb, "--problem", "lq=4 d=8 device=cuda"});
    expect_80_columns(run.out);
    expect_80_columns(run.err);
  }
}

// Of the operation that was asked for: Linear's implementations, never attention's.
TEST(Terminal, ARefusalOfADeviceNamesTheOperation) {
  for (const char* verb : {"explain", "bench", "verify"}) {
    std::vector<std::string> words{verb, "--problem", "op=linear m=8 k=8 n=8 device=cuda"};
    if (words.front() == "bench") words.insert(words.end(), {"--repeat-for", "0.01"});
    const Ended run = fovea(words);
    const std::string said = std::regex_replace(run.out + run.err, std::regex("\\s+"), " ");
    for (const char* one : {"cuda.any", "cuda.sm90", "vectorized"})
      EXPECT_EQ(said.find(one), std::string::npos) << said;
    const bool runs = run.code == 0 && said.find("no implementation takes") == std::string::npos;
    EXPECT_NE(runs, said.find("no implementation of linear can run there") != std::string::npos) << said;
  }
}

TEST(Terminal, InfoFits80Columns) {
  const Ended run = fovea({"info", "--quick"});
  EXPECT_EQ(run.code, 0) << run.err;
  expect_80_columns(run.out);
}

// As the quick preset: nothing but defaults is common, and `flash` becomes another implementation for each type.
TEST(Terminal, ATableOfTwoTypesHasNoEmptyColumns) {
  const auto row = [](const std::string& problem, const std::string& impl) {
    program::Row made;
    made.problem = "op=attention " + problem + " hkv=1 lq=8 lk=8 dv=8 layout=bhld device=cpu data=normal";
    made.impl = impl;
    made.status = "ok";
    made.time_s = program::statistics_of({1, 1, 1});
    return made;
  };
  std::vector<program::Row> rows;
  for (const char* impl : {"naive_with_a_long_name", "vectorized_with_a_long_name"}) {
    rows.push_back(row("pass=fwd d=8 dtype=fp32", impl));
    rows.push_back(row("pass=bwd d=8 dtype=bf16", impl));
  }
  rows.push_back(row("pass=fwd d=8 dtype=fp32", "cpu.avx512"));
  rows.push_back(row("pass=bwd d=8 dtype=bf16", "cpu.avx512_bf16"));
  const std::string text = program::terminal_text(program::bench_table(rows, {}), false);
  expect_80_columns(text);
  EXPECT_NE(text.find("naive_with_a_long_name  vectorized_with_a_long_name  cpu.avx512\n"), std::string::npos) << text;
}

TEST(Terminal, ABenchTellsWhatFlashBecame) {
  const Ended run = fovea({"bench", "--problem", "lq=4,8 d=8", "--impl", "flash", "--repeat-for", "0.001"});
  EXPECT_NE(run.out.find("\nflash: cpu."), std::string::npos) << run.out;
  EXPECT_EQ(fovea(kTwoCells).out.find("flash:"), std::string::npos);
}

TEST(Terminal, TheLegendExplainsOnlyMarksOfTheTable) {
  const Ended alone = fovea({"bench", "--problem", "lq=4 d=8", "--impl", "reference", "--repeat-for", "0.001"});
  EXPECT_EQ(alone.out.find("clearly fastest"), std::string::npos) << alone.out;
  const Ended run = fovea({"bench", "--problem", "lq=256 d=64", "--impl", "reference,flash", "--repeat-for", "0.01"});
  EXPECT_NE(run.out.find("* clearly fastest"), std::string::npos) << run.out;
}

TEST(Terminal, EveryTenthRowIsALineOfProgress) {
  const Ended run = fovea({"bench", "--problem", "lq=1,2,3,4,5,6,7,8,9,10,11,12 d=8,9", "--impl", "reference",
                           "--repeat-for", "0.001", "--threads", "1"});
  EXPECT_EQ(lines_of(run.err), 3U) << run.err;
  for (const char* part : {"[10/24]", "[20/24]", "[24/24]", "lq=12 d=9\n"})
    EXPECT_NE(run.err.find(part), std::string::npos) << run.err;
}

TEST(Terminal, VerifyBeginsWithItsVerdict) {
  const std::vector<std::string> words = {"verify", "--cases", "10", "--impl", "reference,cpu.scalar"};
  const Ended run = fovea(words);
  EXPECT_EQ(run.out.rfind("20 passed, 0 failed\n", 0), 0U) << run.out;
  EXPECT_EQ(run.out.find("Cases that"), std::string::npos) << run.out;
  expect_80_columns(run.out);
  std::vector<std::string> with_coverage = words;
  with_coverage.emplace_back("--coverage");
  const Ended covered = fovea(with_coverage);
  EXPECT_EQ(covered.out.rfind("20 passed, 0 failed\n", 0), 0U) << covered.out;
  EXPECT_NE(covered.out.find("Cases that cpu.scalar ran"), std::string::npos) << covered.out;
  EXPECT_NE(covered.out.find("Its plans, forward: packed by tasks "), std::string::npos) << covered.out;
  expect_80_columns(covered.out);
}

TEST(Terminal, CoverageOfEveryOperationFits80Columns) {
  for (const char* operation : {"mha_fused", "mla", "linear", "model"}) {
    const Ended run = fovea({"verify", "--op", operation, "--cases", "2", "--coverage"});
    expect_80_columns(run.out);
    EXPECT_EQ(run.out.find("causalcausal"), std::string::npos) << run.out;
  }
}

TEST(Terminal, VerifyTellsWhyItDidNotJudge) {
  const Ended linear = fovea({"verify", "--problem", "op=linear m=8 k=8 n=8 data=nonfinite"});
  EXPECT_NE(linear.out.find("not judged: baselines are exempt"), std::string::npos) << linear.out;
  EXPECT_EQ(linear.out.find("scores"), std::string::npos) << linear.out;
  expect_80_columns(linear.out);
}

TEST(Terminal, ExplainTellsWhoIsOnlyNotChosenByItself) {
  const Ended run = fovea({"explain", "--problem", "lq=1k d=64 dtype=bf16 mask=window left=100 right=0 pass=e2e"});
  expect_80_columns(run.out);
  EXPECT_NE(run.out.find("runs only when named"), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find("refuses: runs only"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("iB ("), std::string::npos) << "bytes with their unit: " << run.out;
}

TEST(Terminal, ATableIsExported) {
  const Folder folder;
  std::vector<std::string> words = kTwoCells;
  words.insert(words.end(), {"--export-markdown", folder / "table.md", "--export-csv", folder / "table.csv"});
  ASSERT_EQ(fovea(words).code, 0);
  const std::string table = read_text(folder / "table.md"), rows = read_text(folder / "table.csv");
  EXPECT_NE(table.find("| lq | reference |\n| --- | --- |\n| 4 | "), std::string::npos) << table;
  EXPECT_EQ(rows.rfind("problem,implementation,threads,status,median_s,q1_s,q3_s,samples,flags\n", 0), 0U) << rows;
  EXPECT_EQ(lines_of(rows), 3U) << rows;
}

TEST(Terminal, AnExportThatCannotBeWrittenEndsTheRunBeforeItMeasures) {
  const Folder folder;
  std::vector<std::string> words = kTwoCells;
  words.insert(words.end(), {"--export-csv", folder / "no folder/table.csv"});
  const Ended run = fovea(words);
  EXPECT_EQ(run.code, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_NE(run.err.find("no folder/table.csv: No such file"), std::string::npos) << run.err;
  words.back() = "/dev/full";
  const Ended full = fovea(words);
  EXPECT_EQ(full.code, 3) << full.err;
  const Ended limits = fovea({"bench", "--preset", "cpu-limits", "--export-markdown", folder / "table.md"});
  EXPECT_EQ(limits.code, 2);
  EXPECT_NE(limits.err.find("--export-markdown"), std::string::npos) << limits.err;
}

TEST(Terminal, ColourOnATerminalThatReportsNoWidth) {
  const Ended run = fovea(kTwoCells, {.terminal = true, .environment = {"TERM=xterm", "NO_COLOR="}});
  EXPECT_EQ(run.code, 0) << run.out;
  EXPECT_NE(run.out.find("\033[1m"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("\r\033[K["), std::string::npos) << "no moving line of progress: " << run.out;
}

TEST(Terminal, NoColourWithNoColorOrADumbTerminal) {
  for (const auto& variables : {std::vector<std::string>{"NO_COLOR=1", "TERM=xterm"}, {"NO_COLOR=", "TERM=dumb"}}) {
    const Ended run = fovea(kTwoCells, {.terminal = true, .environment = variables});
    EXPECT_EQ(run.code, 0) << run.out;
    EXPECT_EQ(run.out.find("\033[1m"), std::string::npos) << run.out;
  }
}

// As when piped into `head`: no message, no signal, and the records are whole.
TEST(Terminal, AClosedPipeLosesNoRecords) {
  const Folder folder;
  for (const char* form : {"--json", "--yes"}) {
    auto arguments = kTwoCells;
    const std::string file = folder / form;
    arguments.insert(arguments.end(), {form, "-o", file});
    const Ended run = fovea(arguments, {.close_output = true});
    EXPECT_LT(run.code, 128);
    EXPECT_EQ(run.err.find("rror"), std::string::npos) << run.err;
    expect_valid_records(file);
    EXPECT_EQ(program::load_records(file).rows.size(), 2u);
    EXPECT_LT(fovea({"compare", file, file}, {.close_output = true}).code, 128);
  }
}

TEST(Devices, CpuWorksWithAnyGpuVariables) {
  for (const char* variable : {"CUDA_VISIBLE_DEVICES=", "CUDA_VISIBLE_DEVICES=-1", "CUDA_VISIBLE_DEVICES=junk"}) {
    EXPECT_EQ(fovea(kTwoCells, {.environment = {variable}}).code, 0);
    EXPECT_EQ(fovea({"info"}, {.environment = {variable}}).code, 0);
  }
}

TEST(Environment, AnUnknownInstructionSetIsRefused) {
  for (const char* verb : {"explain", "bench"}) {
    const Ended run = fovea({verb, "--problem", "lq=4 d=8"}, {.environment = {"FOVEA_CPU_ISA=sse9"}});
    EXPECT_EQ(run.code, 2) << run.err;
    EXPECT_NE(run.err.find("FOVEA_CPU_ISA"), std::string::npos) << run.err;
    EXPECT_NE(run.err.find("got:    sse9"), std::string::npos) << run.err;
    EXPECT_NE(run.err.find("avx512_bf16"), std::string::npos) << run.err;
  }
}

TEST(Verbs, EveryVerbHasHelp) {
  const auto expect_narrow = [](const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  };
  const std::string overview = fovea({"--help"}).out;
  expect_narrow(overview);
  EXPECT_EQ(overview.find("worker"), std::string::npos) << "the worker is for the bench alone";
  for (const char* verb : {"info", "explain", "verify", "bench", "compare", "report", "train", "profile"}) {
    SCOPED_TRACE(verb);
    EXPECT_NE(overview.find(std::string("\n  ") + verb), std::string::npos) << overview;
    const Ended help = fovea({verb, "--help"});
    EXPECT_EQ(help.code, 0);
    EXPECT_EQ(help.err, "");
    EXPECT_NE(help.out.find(std::string("fovea ") + verb), std::string::npos) << help.out;
    EXPECT_NE(help.out.find("--json"), std::string::npos) << help.out;
    expect_narrow(help.out);
  }
  const Ended version = fovea({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_FALSE(version.out.empty());
}

TEST(Verbs, TheWorkerStartedByHandSaysThatBenchStartsIt) {
  const Ended run = fovea({"worker", "--kernel", "reference"});
  EXPECT_EQ(run.code, 2);
  EXPECT_NE(run.err.find("fovea bench"), std::string::npos) << run.err;
}

// One JSON value, or one a line.
bool parses(const std::string& text) {
  if (nlohmann::json::accept(text)) return true;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!nlohmann::json::accept(line)) return false;
  }
  return !text.empty();
}

TEST(Verbs, JsonOfEveryVerbParses) {
  const Folder folder;
  const std::string records = folder / "records.jsonl", line = "hq=2 lq=5 d=8";
  const std::vector<std::vector<std::string>> commands = {
      {"bench", "--problem", line, "--impl", "reference", "--repeat-for", "0.01", "--json", "-o", records},
      {"compare", records, records, "--json"},
      {"info", "--json"},
      {"explain", "--problem", line, "--json"},
      {"verify", "--cases", "5", "--seed", "1", "--json"},
      {"report", records, "-o", folder / "report", "--json"},
  };
  for (const auto& command : commands) {
    SCOPED_TRACE(command.front());
    const Ended run = fovea(command);
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_TRUE(parses(run.out)) << run.out;
  }
}

}  // namespace
}  // namespace fovea::tests

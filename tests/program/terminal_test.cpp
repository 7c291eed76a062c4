// Terminals, pipes and files get what suits them; every verb helps and speaks JSON.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

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
  EXPECT_NE(run.err.find("[2/2]"), std::string::npos) << "one line per row: " << run.err;
}

TEST(Terminal, ColourOnATerminalThatReportsNoWidth) {
  const Ended run = fovea(kTwoCells, {.terminal = true, .environment = {"TERM=xterm", "NO_COLOR="}});
  EXPECT_EQ(run.code, 0) << run.out;
  EXPECT_NE(run.out.find("\033[1m"), std::string::npos) << run.out;
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

TEST(Verbs, EveryVerbHasHelp) {
  const std::string overview = fovea({"--help"}).out;
  EXPECT_EQ(overview.find("worker"), std::string::npos) << "the worker is for the bench alone";
  for (const char* verb : {"info", "explain", "verify", "bench", "compare", "report"}) {
    SCOPED_TRACE(verb);
    EXPECT_NE(overview.find(std::string("\n  ") + verb), std::string::npos) << overview;
    const Ended help = fovea({verb, "--help"});
    EXPECT_EQ(help.code, 0);
    EXPECT_EQ(help.err, "");
    EXPECT_NE(help.out.find(std::string("fovea ") + verb), std::string::npos) << help.out;
    EXPECT_NE(help.out.find("--json"), std::string::npos) << help.out;
    std::istringstream lines(help.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
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

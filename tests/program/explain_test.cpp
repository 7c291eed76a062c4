// What `fovea explain` prints: the walk, tiles, memory and operations of a problem.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "program/terminal_text.h"
#include "run_program.h"

namespace fovea::tests {
namespace {

nlohmann::json told(const std::string& line) {
  const Ended run = fovea({"explain", "--problem", line, "--json"});
  EXPECT_EQ(run.code, 0) << run.err << run.out;
  return nlohmann::json::parse(run.out);
}

// The rows `  name  bytes`, which stand below the row `title`.
std::vector<std::string> rows_below(const std::string& title, const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line) && !line.starts_with(title)) continue;
  std::vector<std::string> rows;
  while (std::getline(lines, line) && line.starts_with("  ")) rows.push_back(line.substr(2, line.find("  ", 2) - 2));
  return rows;
}

std::vector<std::string> names_of(const nlohmann::json& arrays) {
  std::vector<std::string> names;
  for (const auto& one : arrays) names.push_back(one["name"]);
  return names;
}

std::int64_t bytes_of(const nlohmann::json& arrays) {
  std::int64_t bytes = 0;
  for (const auto& one : arrays) bytes += one["bytes"].get<std::int64_t>();
  return bytes;
}

void expect_80_columns(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(program::columns_of(line), program::kTerminalColumns) << line;
}

TEST(Explain, ShowsTheWalk) {
  const Ended run = fovea({"explain", "--problem", "lq=100 d=64"});
  EXPECT_EQ(run.code, 0);
  for (const char* word : {"takes it", "would take it", "workspace", "saved for backward", "operations", "lower bound"})
    EXPECT_NE(run.out.find(word), std::string::npos) << run.out;
}

// The formula of docs/kernels/baselines.md, for whichever pass is asked about.
TEST(Explain, ShowsTheSavedStateOfABaseline) {
  for (const char* pass : {"fwd", "bwd", "e2e"}) {
    const std::string line = "b=2 hq=3 lq=400 lk=300 d=64 dtype=bf16 pass=" + std::string(pass);
    for (const auto& run : {fovea({"explain", "--problem", line, "--impl", "naive", "--json"}),
                            fovea({"explain", "--problem", line, "--json"}, {.environment = {"FOVEA_IMPL=naive"}})}) {
      ASSERT_EQ(run.code, 0) << run.err << run.out;
      const auto json = nlohmann::json::parse(run.out);
      EXPECT_EQ(json["chosen"], "naive");
      EXPECT_EQ(json["saved_bytes"], 64 + 2 * 3 * 400 * 300 * 2) << pass;
    }
  }
}

TEST(Explain, TilesOfBothPassesAreShown) {
  for (const std::string problem : {"lq=300 d=64", "op=linear m=1k n=512 k=256"}) {
    const auto only_forward = told(problem + " pass=fwd"), both = told(problem + " pass=e2e");
    const std::string forward = only_forward["tiles"], backward = told(problem + " pass=bwd")["tiles"];
    EXPECT_NE(forward, backward);
    EXPECT_EQ(only_forward["backward_tiles"], "");
    EXPECT_EQ(both["forward_tiles"], forward);
    EXPECT_EQ(both["backward_tiles"], backward);
    EXPECT_EQ(both["tiles"], "forward: " + forward + "; backward: " + backward);
    std::string words;  // with one space where lines are broken
    std::istringstream text(fovea({"explain", "--problem", problem + " pass=e2e"}).out);
    for (std::string word; text >> word;) words += word + " ";
    EXPECT_NE(words.find("tiles, forward"), std::string::npos) << words;
    EXPECT_NE(words.find(backward), std::string::npos) << words;
  }
}

TEST(Explain, FlopsOfBothPassesAreAdded) {
  std::map<std::string, double> flops;
  for (const char* pass : {"fwd", "bwd", "e2e"}) flops[pass] = told("lq=100 d=64 pass=" + std::string(pass))["flops"];
  EXPECT_EQ(flops["e2e"], flops["fwd"] + flops["bwd"]);
}

// q, k, v and the result of attention in bf16, and lse in fp32.
TEST(Explain, ArraysThatALayerSavesAreListedForEveryPass) {
  const std::vector<std::string> names{"q", "k", "v", "attention", "lse"};
  for (const char* pass : {"fwd", "bwd", "e2e"}) {
    const std::string line = "op=gqa hq=4 hkv=2 lq=128 d=64 dtype=bf16 pass=" + std::string(pass);
    const auto json = told(line);
    EXPECT_EQ(names_of(json["saved"]), names);
    EXPECT_EQ(bytes_of(json["saved"]), 128 * 64 * (4 + 2 + 2 + 4) * 2 + 128 * 4 * 4);
    EXPECT_GE(json["saved_bytes"], bytes_of(json["saved"]));
    const Ended words = fovea({"explain", "--problem", line});
    EXPECT_EQ(rows_below("saved for backward", words.out), names) << words.out;
    expect_80_columns(words.out);
  }
  EXPECT_TRUE(told("lq=100 d=64")["saved"].empty());
}

TEST(Explain, MemoryAndPartsOfAModelAreTold) {
  const std::string sizes = "op=model layers=2 width=64 heads=2 hidden=96 vocabulary=32 lq=16 pass=step dtype=";
  for (const std::string dtype : {"fp32", "bf16"}) {
    const auto json = told(sizes + dtype);
    std::vector<std::string> names{"weights", "gradients", "optimizer state", "kept for backward", "scratch"};
    if (dtype == "bf16") names.insert(names.begin() + 3, "weights in bf16");
    EXPECT_EQ(names_of(json["own_memory"]), names);
    std::map<std::string, std::int64_t> bytes;
    for (const auto& one : json["own_memory"]) bytes[one["name"]] = one["bytes"];
    const std::int64_t parameters = 2 * (4 * 64 * 64 + 3 * 64 * 96 + 2 * 64) + 64 + 2 * 32 * 64;
    EXPECT_EQ(bytes["weights"], parameters * 4);
    EXPECT_EQ(bytes["optimizer state"], 2 * bytes["weights"]);
    EXPECT_GT(bytes["kept for backward"], 2 * 16 * 64 * 4);  // at least the inputs of the blocks
    for (const char* pass : {"forward_tiles", "backward_tiles"}) {
      const std::string parts = json[pass];
      EXPECT_TRUE(parts.starts_with("attention cpu.")) << parts;
      EXPECT_NE(parts.find("; products cpu."), std::string::npos) << parts;
    }
    const Ended words = fovea({"explain", "--problem", sizes + dtype});
    EXPECT_EQ(rows_below("memory of its own", words.out), names) << words.out;
    EXPECT_EQ(words.out.find(" 0 bytes"), std::string::npos) << words.out;
    expect_80_columns(words.out);
  }
}

}  // namespace
}  // namespace fovea::tests

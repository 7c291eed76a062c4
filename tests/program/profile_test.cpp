// fovea profile: its rows, its table, a model that does not fit, and refusals.
#include <gtest/gtest.h>
#include <signal.h>

#include "run_program.h"

namespace fovea::tests {
namespace {

std::vector<std::string> command(const std::vector<std::string>& more) {
  std::vector<std::string> words{"profile", "--layers",  "2",  "--width",   "32", "--heads", "2", "--hidden",
                                 "48",      "--context", "16", "--warm-up", "1",  "--steps", "4"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(Profile, HasARowForEachPass) {
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  const Ended run = fovea(command({"--batch", "3", "--vocabulary", "100", "-o", file}));
  ASSERT_EQ(run.code, 0) << run.err;
  expect_valid_records(file);
  const auto rows = program::load_records(file).profiles;
  ASSERT_EQ(rows.size(), 3u);
  const std::vector<std::string> passes{"forward", "forward+backward", "step"};
  const std::vector<std::size_t> phases{2, 3, 4};  // with the total
  for (std::size_t i = 0; i < 3; ++i) {
    const program::ProfileRow& row = rows[i];
    EXPECT_EQ(row.passes, passes[i]);
    EXPECT_EQ(row.model, "custom");
    EXPECT_EQ(row.device, "cpu");
    EXPECT_EQ(row.sizes, "layers=2 width=32 heads=2 hidden=48 vocabulary=100 context=256");
    EXPECT_EQ(row.parameters, 2 * (4 * 32 * 32 + 3 * 32 * 48 + 2 * 32) + 2 * 100 * 32 + 32);
    EXPECT_EQ(row.times.size(), phases[i]);
    double sum = 0;
    for (const auto& [phase, time] : row.times) {
      EXPECT_EQ(time.n, 4) << phase;
      if (phase != "total") sum += time.mean;
    }
    EXPECT_NEAR(sum, row.times.at("total").mean, 1e-9) << "phases do not overlap, and nothing is between them";
    double parts = 0, flops = 0;
    for (const auto& [name, part] : row.parts) parts += part.seconds, flops += part.flops;
    EXPECT_LE(parts, row.times.at("total").mean * (1 + 1e-9));
    EXPECT_GT(parts, row.times.at("total").mean / 2) << "little is between the parts";
    EXPECT_DOUBLE_EQ(flops, row.flops);
    EXPECT_EQ(row.parts.at("forward.norm").calls, 5);
    EXPECT_EQ(row.parts.contains("backward.attention"), i > 0);
    EXPECT_GT(row.planned_bytes, row.state_bytes + row.activation_bytes + row.workspace_bytes);
    EXPECT_NE(run.out.find(passes[i]), std::string::npos) << run.out;
    EXPECT_NE(run.out.find("custom, step: parts of a step"), std::string::npos) << run.out;
  }
  EXPECT_GT(rows[1].flops, 2.9 * rows[0].flops);
  EXPECT_EQ(rows[1].flops, rows[2].flops) << "of products and attention";
}

TEST(Profile, TakesATypeAndCheckpointedActivations) {
  const Folder folder;
  const auto row_of = [&](const std::vector<std::string>& more) {
    const std::string file = folder / ("run" + std::to_string(more.size()) + ".jsonl");
    std::vector<std::string> words = command({"--passes", "step", "--batch", "4", "-o", file});
    words.insert(words.end(), more.begin(), more.end());
    const Ended run = fovea(words);
    EXPECT_EQ(run.code, 0) << run.err;
    expect_valid_records(file);
    return program::load_records(file).profiles.at(0);
  };
  const program::ProfileRow fp32 = row_of({}), bf16 = row_of({"--dtype", "bf16"}),
                            checkpointed = row_of({"--dtype", "bf16", "--checkpoint-activations"});
  EXPECT_EQ(bf16.sizes, fp32.sizes + " dtype=bf16");
  EXPECT_EQ(checkpointed.sizes, bf16.sizes + " activations=checkpointed");
  EXPECT_GT(bf16.state_bytes, fp32.state_bytes);
  EXPECT_LT(bf16.activation_bytes, fp32.activation_bytes);
  EXPECT_LT(checkpointed.activation_bytes, bf16.activation_bytes);
  EXPECT_EQ(bf16.flops, fp32.flops);
  EXPECT_GT(checkpointed.flops, bf16.flops);
  EXPECT_EQ(checkpointed.parts.at("backward.recompute").calls, 1) << "of two layers";
  double flops = 0;
  for (const auto& [name, part] : checkpointed.parts) flops += part.flops;
  EXPECT_DOUBLE_EQ(flops, checkpointed.flops);
}

TEST(Profile, AModelThatDoesNotFitIsARowAndTheRunGoesOn) {
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  const Ended run = fovea({"profile", "--model", "cs336-2026:10b,report-d1:sm", "--context", "1", "--warm-up", "0",
                           "--steps", "3", "--passes", "forward", "-o", file});
  ASSERT_EQ(run.code, 0) << run.err;
  const auto rows = program::load_records(file).profiles;
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].status, "oom");
  EXPECT_TRUE(rows[0].times.empty());
  EXPECT_NE(rows[0].reason.find("planned "), std::string::npos) << rows[0].reason;
  EXPECT_EQ(rows[1].status, rows[1].times.empty() ? "oom" : "ok");
  expect_valid_records(file);
}

TEST(Profile, PrintsRecords) {
  const Folder folder;
  const Ended run = fovea(command({"--passes", "step", "--json"}));
  ASSERT_EQ(run.code, 0) << run.err;
  write_text(folder / "run.jsonl", run.out);
  expect_valid_records(folder / "run.jsonl");
  EXPECT_EQ(program::load_records(folder / "run.jsonl").profiles.size(), 1u);
}

TEST(Profile, RefusesWhatItCannotProfile) {
  const auto refusal = [](const std::vector<std::string>& words) {
    const Ended run = fovea(words);
    EXPECT_EQ(run.code, 2) << run.err;
    return run.err;
  };
  EXPECT_NE(refusal({"profile", "--model", "sm"}).find("no preset of this name"), std::string::npos);
  EXPECT_NE(refusal({"profile", "--model", "report-d1:s"}).find("did you mean `report-d1:sm`?"), std::string::npos);
  EXPECT_NE(refusal({"profile", "--heads", "3"}).find("argument `heads`"), std::string::npos);
  EXPECT_NE(refusal({"profile", "--steps", "2"}).find("--steps"), std::string::npos);
  EXPECT_NE(refusal({"profile", "--passes", "backward"}).find("--passes"), std::string::npos);
  EXPECT_NE(refusal({"profile", "--device", "tpu"}).find("--device"), std::string::npos);
  EXPECT_NE(refusal({"profile", "--model", "report-d1:sm", "--layers", "2"}).find("a preset has its own sizes"),
            std::string::npos);
}

TEST(Profile, SaysThatThereIsNoGpu) {
  const Ended run = fovea(command({"--device", "cuda"}), {.environment = {"CUDA_VISIBLE_DEVICES="}});
  EXPECT_EQ(run.code, 4) << run.err;
  EXPECT_NE(run.err.find("fovea profile: no device"), std::string::npos) << run.err;
}

TEST(Profile, AnInterruptKeepsTheRowsThatAreThere) {
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  std::vector<std::string> words = command({"-o", file});
  words[words.size() - 3] = "1000000";  // steps
  const Ended run = fovea(words, {.while_it_runs = [&](pid_t pid) {
                            for (int i = 0; i < 400 && read_text(file).empty(); ++i) usleep(10'000);
                            kill(pid, SIGINT);
                          }});
  EXPECT_EQ(run.code, 130) << run.err;
  expect_valid_records(file);
}

}  // namespace
}  // namespace fovea::tests

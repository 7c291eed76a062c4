// fovea profile: its rows, its table, presets, peers, a model that does not fit, and refusals.
#include "program/profile/profile.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <map>
#include <nlohmann/json.hpp>

#include "run_program.h"
#include "small_profile.h"

namespace fovea::tests {
namespace {

using Rows = std::vector<program::Row>;

// The row of an implementation whose line has this pass; fails the test if there is not exactly one.
program::Row row_of(const Rows& rows, const std::string& pass, const std::string& impl = "fovea") {
  Rows found;
  for (const program::Row& row : rows) {
    if (row.impl == impl && row.problem.find("op=model pass=" + pass + " ") == 0) found.push_back(row);
  }
  EXPECT_EQ(found.size(), 1u) << pass << " of " << impl;
  return found.empty() ? program::Row{} : found.front();
}

TEST(Profile, HasTimesOfEachPhaseAndPartsOfEachPass) {
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  const Ended run = fovea(small_profile({"--batch", "3", "--vocabulary", "100", "-o", file}));
  ASSERT_EQ(run.code, 0) << run.err;
  expect_valid_records(file);
  const program::Records records = program::load_records(file);
  const std::vector<program::ProfileRow>& rows = records.profiles;
  ASSERT_EQ(rows.size(), 3u);
  const std::vector<std::string> passes{"forward", "forward+backward", "step"}, wholes{"fwd", "e2e", "step"};
  const std::int64_t parameters = 2 * (4 * 32 * 32 + 3 * 32 * 48 + 2 * 32) + 2 * 100 * 32 + 32;
  for (std::size_t i = 0; i < 3; ++i) {
    const program::ProfileRow& row = rows[i];
    const program::Row whole = row_of(records.rows, wholes[i]);
    EXPECT_EQ(row.passes, passes[i]);
    EXPECT_EQ(row.model, "custom");
    EXPECT_EQ(row.device, "cpu");
    EXPECT_EQ(row.sizes, "layers=2 width=32 heads=2 hidden=48 vocabulary=100 context=16") << "as profiled";
    EXPECT_EQ(whole.problem, "op=model pass=" + wholes[i] +
                                 " model=custom b=3 lq=16 layers=2 width=32 heads=2 hidden=48 vocabulary=100 params=" +
                                 std::to_string(parameters) + " dtype=fp32" +
                                 (i > 0 ? " activations=kept accumulate=no" : "") +
                                 " device=cpu data=normal place=contiguous seed=0");
    EXPECT_EQ(row.parameters, parameters);
    EXPECT_GT(row.products_s.value_or(0), 0);
    EXPECT_EQ(whole.flops, row.flops);
    double parts = 0, flops = 0;
    for (const auto& [name, part] : row.parts) parts += part.seconds, flops += part.flops;
    EXPECT_LE(parts, whole.time_s->mean * (1 + 1e-9));
    EXPECT_GT(parts, 0);
    EXPECT_DOUBLE_EQ(flops, row.flops);
    EXPECT_EQ(row.parts.at("forward.norm").calls, 5);
    EXPECT_EQ(row.parts.contains("backward.attention"), i > 0);
    EXPECT_EQ(row.parts.at("forward.qkv").calls, 2);
    EXPECT_EQ(row.parts.at("forward.qkv").flops, 2.0 * 2 * 48 * 32 * 96) << "two layers, 48 rows";
    EXPECT_EQ(row.parts.at("forward.norm").bytes, 48.0 * 32 * (8 + 4 * 16)) << "all but the first also add a branch";
    EXPECT_EQ(row.memory.contains("backward"), i > 0);
    EXPECT_EQ(row.memory.contains("optimizer"), i > 1);
    EXPECT_EQ(row.memory.at("after_init").planned, row.state_bytes);
    for (const auto& [moment, memory] : row.memory) {
      EXPECT_LE(memory.planned, row.planned_bytes) << moment;
      EXPECT_EQ(memory.measured, row.planned_bytes) << moment << ": one block";
    }
    EXPECT_GT(row.planned_bytes, row.state_bytes + row.activation_bytes + row.workspace_bytes);
    EXPECT_EQ(row.measured_bytes, row.planned_bytes) << "nothing is allocated beside the plan";
    EXPECT_NE(run.out.find(passes[i]), std::string::npos) << run.out;
    EXPECT_NE(run.out.find("\n  optimizer  "), std::string::npos) << "a line for each phase of a step\n" << run.out;
    EXPECT_NE(run.out.find("custom, step: parts of a step"), std::string::npos) << run.out;
    EXPECT_NE(run.out.find("custom: ms, medians; products are fovea's, alone"), std::string::npos) << run.out;
  }
  EXPECT_GT(rows[1].flops, 2.9 * rows[0].flops);
  EXPECT_EQ(rows[1].flops, rows[2].flops) << "of products and attention";
}

TEST(Profile, TakesATypeAndCheckpointedActivations) {
  const Folder folder;
  std::vector<std::string> lines;
  const auto profiled = [&](const std::vector<std::string>& more) {
    const std::string file = folder / ("run" + std::to_string(more.size()) + ".jsonl");
    std::vector<std::string> words = small_profile({"--passes", "step", "--batch", "4", "-o", file});
    words.insert(words.end(), more.begin(), more.end());
    const Ended run = fovea(words);
    EXPECT_EQ(run.code, 0) << run.err;
    expect_valid_records(file);
    const program::Records records = program::load_records(file);
    lines.push_back(row_of(records.rows, "step").problem);
    return records.profiles.at(0);
  };
  const program::ProfileRow fp32 = profiled({}), bf16 = profiled({"--dtype", "bf16"}),
                            checkpointed = profiled({"--dtype", "bf16", "--checkpoint-activations"});
  EXPECT_NE(lines[0].find(" model=custom b=4 "), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find(" dtype=fp32 "), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find(" model=custom b=4 "), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find(" dtype=bf16 "), std::string::npos) << lines[1];
  EXPECT_NE(lines[2].find(" activations=checkpointed "), std::string::npos) << lines[2];
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

TEST(Profile, PhasesOfAStepAddUp) {
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  ASSERT_EQ(fovea(small_profile({"-o", file})).code, 0);
  const Rows rows = program::load_records(file).rows;
  ASSERT_EQ(rows.size(), 6u);
  const auto samples = [&](const char* pass) { return row_of(rows, pass).time_s->samples; };
  const auto first = samples("step_fwd"), rest = samples("step_rest"), whole = samples("step");
  ASSERT_EQ(whole.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(first[i] + rest[i], whole[i], 1e-12);
  const program::Row step = row_of(rows, "step"), all_but_forward = row_of(rows, "step_rest");
  const auto samples_of = [](const program::Row& row, const char* phase) { return row.phases.at(phase).samples; };
  const auto backward = samples_of(step, "backward"), optimizer = samples_of(step, "optimizer");
  EXPECT_EQ(samples_of(step, "forward"), first);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(backward.at(i) + optimizer.at(i), rest[i], 1e-12);
  EXPECT_EQ(samples_of(all_but_forward, "optimizer"), optimizer);
  EXPECT_EQ(all_but_forward.phases.size(), 2u);
  EXPECT_EQ(step.phases.size(), 3u);
  EXPECT_EQ(row_of(rows, "e2e").phases.size(), 2u);
  EXPECT_EQ(samples_of(row_of(rows, "fwd"), "forward"), samples("fwd"));
  EXPECT_EQ(row_of(rows, "bwd").flops, row_of(rows, "e2e").flops - row_of(rows, "fwd").flops);
  EXPECT_EQ(row_of(rows, "step_rest").flops, row_of(rows, "bwd").flops);
  const program::ProfileRow plan = program::load_records(file).profiles.front();
  EXPECT_EQ(row_of(rows, "step").memory_before_forward_bytes, plan.state_bytes);
  EXPECT_FALSE(row_of(rows, "fwd").memory_before_forward_bytes);
  EXPECT_EQ(row_of(rows, "bwd").memory_before_backward_bytes, plan.state_bytes + plan.activation_bytes);
  EXPECT_EQ(*row_of(rows, "bwd").memory_before_backward_bytes + *row_of(rows, "bwd").workspace_bytes,
            plan.planned_bytes);
}

TEST(Profile, EachPhaseHasALineThatFitsTheTerminal) {
  std::vector<program::ProfileResult> results;
  for (const char* const impl : {"fovea", "torch.compile"}) {
    program::ProfileResult& one =
        results.emplace_back(program::ProfileResult{.problem = verification::Case(verification::model_operation())});
    one.row.model = "custom", one.row.passes = "step", one.impl = impl, one.clock_mhz = 1980, one.power_w = 650;
    one.seconds = {{"forward", {11, 10, 12}}, {"backward", {0.02, 0.02, 0.02}}, {"optimizer", {0.1, 0.1, 0.4}}};
  }
  const std::string table = program::profile_table(results, {});
  for (const char* const line : {"\nstep         torch.compile  11220  1153  10120  11120   1980  650\n",
                                 "\n  forward                   11000  1000  10000  11000\n",
                                 "\n  backward                  20.00  0.00  20.00  20.00\n",
                                 "\n  optimizer                 200    173   100    100\n"})
    EXPECT_NE(table.find(line), std::string::npos) << line << table;
  for (std::size_t begin = 0, end; (end = table.find('\n', begin)) != std::string::npos; begin = end + 1)
    EXPECT_LE(end - begin, 80u) << table.substr(begin, end - begin);
}

// The model fits, and would fit beside its peer's; the peer's program does not.
TEST(Profile, APeerWithoutRoomIsARowAndIsNotStarted) {
  model::Config config;
  config.layers = 1, config.width = 32, config.heads = 2, config.hidden = 48, config.vocabulary = 100;
  const program::ProfileSettings settings{.context = 16,
                                          .passes = {"forward"},
                                          .warm_up = 0,
                                          .steps = 1,
                                          .free_bytes = std::int64_t{1} << 29,
                                          .peers = {{"torch.eager", {"/does/not/exist"}}}};
  std::vector<program::ProfileResult> results;
  ASSERT_TRUE(program::profile({"custom", config}, settings,
                               [&](program::ProfileResult one) { results.push_back(std::move(one)); }));
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].status, "ok");
  EXPECT_EQ(results[1].impl, "torch.eager");
  EXPECT_EQ(results[1].status, "oom");
  EXPECT_FALSE(program::is_failure(results[1].status)) << "a limit of the machine";
  EXPECT_NE(results[1].reason.find("GiB, free 512 MiB"), std::string::npos) << results[1].reason;
}

TEST(Profile, AModelThatDoesNotFitIsARowAndTheRunGoesOn) {
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  const Ended run = fovea({"profile", "--model", "cs336-2026:10b,report-d1:sm", "--context", "1", "--warm-up", "0",
                           "--steps", "3", "--passes", "forward", "-o", file});
  ASSERT_EQ(run.code, 0) << run.err;
  const program::Records records = program::load_records(file);
  ASSERT_EQ(records.profiles.size(), 2u);
  EXPECT_EQ(records.profiles[0].status, "oom");
  EXPECT_NE(records.profiles[0].reason.find("planned "), std::string::npos) << records.profiles[0].reason;
  ASSERT_EQ(records.rows.size(), 2u);
  EXPECT_EQ(records.rows[0].status, "oom");
  EXPECT_EQ(records.rows[0].reason, records.profiles[0].reason);
  EXPECT_FALSE(records.rows[0].time_s);
  EXPECT_EQ(records.rows[1].status, records.profiles[1].status);
  expect_valid_records(file);
}

TEST(Profile, APresetSaysWhatTheCommandLineDoesNot) {
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  const Ended run = fovea({"profile", "--preset", "report-d1", "--scale", "full", "--model", "report-d1:sm", "--passes",
                           "forward", "--context", "2", "--warm-up", "0", "-o", file});
  ASSERT_EQ(run.code, 0) << run.err;
  const program::Row row = row_of(program::load_records(file).rows, "fwd");
  EXPECT_NE(row.problem.find(" model=report-d1:sm b=2 lq=2 "), std::string::npos) << row.problem;
  EXPECT_EQ(row.status == "ok" ? row.time_s->n : 10, 10);
}

// A stand-in for Python with torch: it answers as the worker does, with the loss and the seconds that it is told.
std::string stand_in(const Folder& folder, const std::string& loss) {
  const std::string path = folder / "stand_in";
  write_text(path,
             "#!/bin/sh\nwhile read -r line <&5; do case \"$line\" in\n"
             "*prepare*) echo '{\"ok\":true,\"peer\":\"Stand-in 1\"}' >&6;;\n"
             "*compare*) echo '{\"ok\":true,\"loss\":" +
                 loss +
                 "}' >&6;;\n"
                 "*) echo '{\"ok\":true,\"seconds\":{\"forward\":0.5}}' >&6;;\nesac; done\n");
  chmod(path.c_str(), 0755);
  return path;
}

TEST(Profile, APeerWithAnotherLossOrWithoutGradientsIsNotTimed) {
  const std::vector<std::pair<std::string, std::string>> wrong{{"1.5", "its loss is 1.5"}, {"null", "its loss is nan"}};
  for (const auto& [loss, said] : wrong) {
    const Folder folder;
    const std::string file = folder / "run.jsonl";
    const Ended run = fovea(small_profile({"--with", "torch.eager", "--python", stand_in(folder, loss), "-o", file}));
    ASSERT_EQ(run.code, 1) << run.err;
    expect_valid_records(file);
    const Rows rows = program::load_records(file).rows;
    ASSERT_EQ(rows.size(), 12u);
    for (const char* const pass : {"fwd", "bwd", "e2e", "step_fwd", "step_rest", "step"}) {
      EXPECT_EQ(row_of(rows, pass).status, "ok");
      const program::Row peer = row_of(rows, pass, "torch.eager");
      EXPECT_EQ(peer.status, "mismatch") << peer.reason;
      EXPECT_NE(peer.reason.find(said), std::string::npos) << peer.reason;
      EXPECT_EQ(peer.peer, "Stand-in 1");
      EXPECT_FALSE(peer.time_s);
    }
    EXPECT_NE(run.out.find("mismatch"), std::string::npos) << run.out;
  }
}

TEST(Profile, APeerThatGivesNoGradientsIsAMismatch) {
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  // Random tokens and small weights: the loss is close to ln(vocabulary), which the first run tells exactly.
  const Ended first = fovea(small_profile({"--with", "torch.eager", "--python", stand_in(folder, "0"), "-o", file}));
  ASSERT_EQ(first.code, 1) << first.err;
  const std::string reason = row_of(program::load_records(file).rows, "fwd", "torch.eager").reason;
  const std::string own = reason.substr(reason.rfind(' ') + 1);
  const std::string again = folder / "again.jsonl";
  const Ended run = fovea(small_profile({"--with", "torch.eager", "--python", stand_in(folder, own), "-o", again}));
  ASSERT_EQ(run.code, 1) << run.err;
  const program::Row peer = row_of(program::load_records(again).rows, "fwd", "torch.eager");
  EXPECT_EQ(peer.status, "mismatch");
  EXPECT_EQ(peer.reason, "the gradient of embedding.weight differs by 1 of its norm");
}

// The loss that this library computes, which the refusal of a wrong peer tells.
TEST(Profile, TakesWeightsFromAFile) {
  const Folder folder;
  write_text(folder / "text", std::string(400, 'a') + std::string(400, 'b'));
  const std::vector<std::string> sizes{"--layers", "2", "--width", "32", "--heads", "2", "--hidden", "48"};
  std::vector<std::string> words{"train",   "--text", folder / "text", "-o", folder / "out",    "--context", "16",
                                 "--steps", "9",      "--warm-up",     "1",  "--learning-rate", "0.02"};
  words.insert(words.end(), sizes.begin(), sizes.end());
  ASSERT_EQ(fovea(words).code, 0);
  const std::string weights = folder / "out/checkpoint.safetensors";
  const auto said = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> all = small_profile(
        {"--with", "torch.eager", "--python", stand_in(folder, "0"), "--passes", "forward", "-o", folder / name});
    all.insert(all.end(), more.begin(), more.end());
    const Ended run = fovea(all);
    EXPECT_EQ(run.code, 1) << run.err;
    EXPECT_EQ(run.err.find("weights of ") == 0, !more.empty()) << run.err;
    return row_of(program::load_records(folder / name).rows, "fwd", "torch.eager").reason;
  };
  const std::string random = said("random", {}), taken = said("taken", {"--weights", weights});
  EXPECT_NE(random, taken);
  EXPECT_EQ(taken, said("again", {"--weights", weights}));
  const Ended two = fovea({"profile", "--model", "report-d1:sm,report-d1:md", "--weights", weights});
  EXPECT_EQ(two.code, 2);
  EXPECT_NE(two.err.find("a file has the weights of one model"), std::string::npos) << two.err;
  const Ended other = fovea({"profile", "--model", "report-d1:sm", "--weights", weights});
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("a weight is missing"), std::string::npos) << other.err;
}

TEST(Profile, APeerThatDoesNotStartIsARowWithItsReason) {
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  const Ended run = fovea(small_profile({"--with", "torch.eager", "--python", "/bin/false", "-o", file}));
  ASSERT_EQ(run.code, 1) << run.err;
  const Rows rows = program::load_records(file).rows;
  EXPECT_EQ(row_of(rows, "fwd").status, "ok");
  EXPECT_EQ(row_of(rows, "fwd", "torch.eager").status, "crashed");
}

TEST(Profile, ATraceHasTheMeasuredSteps) {
  const Folder folder;
  const std::string file = folder / "trace.json";
  ASSERT_EQ(fovea(small_profile({"--passes", "forward,step", "--trace", file})).code, 0);
  const auto trace = nlohmann::json::parse(read_text(file));
  std::map<std::string, int> names;
  double end = 0;  // of the phase before
  for (const auto& event : trace["traceEvents"]) {
    ++names[event["name"]];
    if (event["name"] == "optimizer") {
      EXPECT_GT(event["ts"], end);
      end = event["ts"].get<double>() + event["dur"].get<double>();
    }
  }
  EXPECT_EQ(names["thread_name"], 2);
  EXPECT_EQ(names["forward"], 4 + 4);
  EXPECT_EQ(names["backward"], 4);
  EXPECT_EQ(names["norm"], 4 * 5 + 4 * 10) << "two layers have five norms, of which a step also runs backward";
  const Ended full = fovea(small_profile({"--trace", "/dev/full"}));
  EXPECT_EQ(full.code, 3) << full.err;
}

// A place that takes no file is refused alike for both files, before anything is timed.
TEST(Profile, FilesThatCannotBeMadeAreRefused) {
  const Folder folder;
  for (const char* const option : {"-o", "--trace"}) {
    for (const auto& [name, why] : {std::pair{"none/file", ": No such file or directory"}, {".", ": Is a directory"}}) {
      const Ended run = fovea(small_profile({option, folder / name}));
      EXPECT_EQ(run.code, 2) << option << ": " << run.err;
      EXPECT_NE(run.err.find(folder / name + why), std::string::npos) << option << ": " << run.err;
      EXPECT_EQ(run.out, "") << "something was timed";
    }
  }
}

TEST(Profile, TwoProfilesAreCompared) {
  const Folder folder;
  for (const char* const name : {"a.jsonl", "b.jsonl"}) ASSERT_EQ(fovea(small_profile({"-o", folder / name})).code, 0);
  const Ended run = fovea({"compare", folder / "a.jsonl", folder / "b.jsonl"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("step_rest"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("0 faster, 0 slower"), std::string::npos) << "one build\n" << run.out;
}

TEST(Profile, PrintsRecords) {
  const Folder folder;
  const Ended run = fovea(small_profile({"--passes", "step", "--json"}));
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
  EXPECT_NE(refusal({"profile", "--preset", "report-d1", "--layers", "2"}).find("a preset has its own sizes"),
            std::string::npos);
  EXPECT_NE(refusal({"profile", "--preset", "report-c"}).find("wanted: report-d1"), std::string::npos);
  EXPECT_NE(refusal({"profile", "--scale", "full"}).find("only presets have a scale"), std::string::npos);
  EXPECT_NE(refusal(small_profile({"--with", "jax"})).find("torch.eager, torch.compile"), std::string::npos);
  EXPECT_NE(refusal(small_profile({"--with", "torch.eager.graph"})).find("wanted: --device cuda"), std::string::npos);
  EXPECT_NE(refusal(small_profile({"--with", "torch,torch.eager"})).find("named twice"), std::string::npos);
}

TEST(Profile, SaysThatThereIsNoGpu) {
  const Ended run = fovea(small_profile({"--device", "cuda"}), {.environment = {"CUDA_VISIBLE_DEVICES="}});
  EXPECT_EQ(run.code, 4) << run.err;
  EXPECT_NE(run.err.find("fovea profile: no device"), std::string::npos) << run.err;
}

}  // namespace
}  // namespace fovea::tests

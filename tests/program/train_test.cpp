// fovea train: interrupts and full disks lose nothing, threads do not change the bits, bad checkpoints are refused.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <thread>

#include "core/random.h"
#include "run_program.h"

namespace fovea::tests {
namespace {

// Without the line breaks of messages.
std::string flat(const std::string& text) {
  std::istringstream words(text);
  std::string all;
  for (std::string word; words >> word;) all += (all.empty() ? "" : " ") + word;
  return all;
}

// Words of a small vocabulary in random order: something to learn, in a moment.
void write_words(const std::string& path, std::size_t words, std::uint64_t seed) {
  static const std::vector<std::string> known{"the ", "licence ", "of ", "this ", "program ", "is ", "free.\n", "and "};
  std::string text;
  for (std::size_t i = 0; i < words; ++i) text += known[core::philox(seed, 0, i)[0] % known.size()];
  write_text(path, text);
}

class Train : public testing::Test {
 protected:
  Train() {
    std::filesystem::create_directory(folder_ / "text");
    write_words(folder_ / "text/a", 900, 1);
    write_words(folder_ / "text/b", 400, 2);
    write_text(folder_ / "text/short", "too short");
    std::filesystem::create_symlink("a", folder_ / "text/link");
  }

  // `more` may hold options that replace these.
  std::vector<std::string> command(const std::string& output, int steps, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"train"};
    for (const auto& [option, value] : {std::pair<std::string, std::string>{"--layers", "2"},
                                        {"--width", "32"},
                                        {"--heads", "2"},
                                        {"--hidden", "48"},
                                        {"--context", "32"},
                                        {"--batch", "4"},
                                        {"--warm-up", "3"},
                                        {"--text", folder_ / "text"},
                                        {"--steps", std::to_string(steps)},
                                        {"-o", folder_ / output}}) {
      if (std::ranges::find(more, option) == more.end()) words.push_back(option), words.push_back(value);
    }
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::string checkpoint(const std::string& output) { return folder_ / (output + "/checkpoint.safetensors"); }
  std::string losses(const std::string& output) { return folder_ / (output + "/losses.jsonl"); }

  // Sends a signal once the run has told some more steps.
  RunOptions signal_after(const std::string& output, int steps, int signal) {
    const auto lines = [file = losses(output)] {
      const std::string text = std::filesystem::exists(file) ? read_text(file) : "";
      return std::ranges::count(text, '\n');
    };
    const auto wanted = lines() + 1 + steps;  // a session begins with a line of its own
    return {.while_it_runs = [=](pid_t pid) {
      for (int i = 0; i < 5000 && lines() < wanted; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      kill(pid, signal);
    }};
  }

  // Losses and gradient norms without the times.
  std::string steps_of(const std::string& output) {
    std::string text;
    for (auto [number, step] : program::load_records(losses(output)).steps) {
      step.seconds = 0;
      text += program::json_line(step) + "\n";
    }
    return text;
  }

  Folder folder_;
};

TEST_F(Train, LearnsAndKeepsARecord) {
  const Ended run = fovea(command("out", 60, {"--held-out-every", "20", "--accumulate", "2"}));
  ASSERT_EQ(run.code, 0) << run.err;
  expect_valid_records(losses("out"));
  const program::Records records = program::load_records(losses("out"));
  ASSERT_EQ(records.steps.size(), 60u);
  EXPECT_NEAR(records.steps.at(1).loss, 5.55, 0.1) << "as likely as any byte";
  EXPECT_LT(records.steps.at(60).loss, 3.5);
  EXPECT_EQ(records.steps.at(1).bytes, 2 * 4 * 32);
  for (const auto& [number, step] : records.steps) EXPECT_EQ(step.held_out.has_value(), number % 20 == 0);
  EXPECT_LT(*records.steps.at(60).held_out, *records.steps.at(20).held_out);
  EXPECT_LT(*records.steps.at(60).trigram, 2.0);
  EXPECT_EQ(records.environments.at(0).facts.at("text_sha256").size(), 64u);
  EXPECT_NE(run.out.find("a trigram count model"), std::string::npos) << run.out;
  const std::size_t planned = run.out.find("memory: "), measured = run.out.find(" planned, ");
  ASSERT_TRUE(planned < measured && measured != std::string::npos) << run.out;
  const std::string size = run.out.substr(planned + 8, measured - planned - 8);
  EXPECT_NE(run.out.find(size + " planned, " + size + " measured"), std::string::npos) << run.out;
  EXPECT_NE(run.err.find("[60/60]"), std::string::npos) << run.err;
  const Ended told = fovea(command("out", 60, {"--accumulate", "2", "--resume", "--json"}));
  EXPECT_EQ(told.out, program::json_line(records.steps.at(60)) + "\n") << "of a training that is complete";
}

TEST_F(Train, ThreadsDoNotChangeTheBits) {
  for (const char* threads : {"1", "2", "3"})
    ASSERT_EQ(fovea(command(threads, 6, {"--threads", threads})).code, 0) << threads;
  for (const char* threads : {"2", "3"}) {
    EXPECT_EQ(read_text(checkpoint(threads)), read_text(checkpoint("1"))) << threads;
    EXPECT_EQ(steps_of(threads), steps_of("1"));
  }
  ASSERT_EQ(fovea(command("other", 6, {"--seed", "1"})).code, 0);
  EXPECT_NE(read_text(checkpoint("other")), read_text(checkpoint("1")));
}

// The weights and moments of a checkpoint, without its header.
std::string tensors_of(const std::string& path) {
  const std::string bytes = read_text(path);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  return bytes.substr(sizeof length + length);
}

TEST_F(Train, Bf16KeepsItsMastersAndContinuesToTheSameBits) {
  const std::vector<std::string> bf16{"--dtype", "bf16", "--save-every", "5"};
  std::vector<std::string> resumed = bf16, checkpointed = bf16, threads = bf16;
  resumed.emplace_back("--resume");
  checkpointed.emplace_back("--checkpoint-activations");
  threads.insert(threads.end(), {"--threads", "3"});
  ASSERT_EQ(fovea(command("whole", 40, bf16)).code, 0);
  ASSERT_EQ(fovea(command("fp32", 40)).code, 0);
  EXPECT_EQ(tensors_of(checkpoint("whole")).size(), tensors_of(checkpoint("fp32")).size()) << "in fp32, all of them";
  EXPECT_NE(tensors_of(checkpoint("whole")), tensors_of(checkpoint("fp32")));
  const auto loss = [&](const std::string& output) { return program::load_records(losses(output)).steps.at(40).loss; };
  EXPECT_LT(loss("whole"), 4.5);
  EXPECT_NEAR(loss("whole"), loss("fp32"), 0.05);
  ASSERT_EQ(fovea(command("checkpointed", 40, checkpointed)).code, 0);
  EXPECT_EQ(read_text(checkpoint("checkpointed")), read_text(checkpoint("whole")));
  ASSERT_EQ(fovea(command("threads", 40, threads)).code, 0);
  EXPECT_EQ(read_text(checkpoint("threads")), read_text(checkpoint("whole")));
  const Ended killed = fovea(command("parts", 40, bf16), signal_after("parts", 6, SIGINT));
  ASSERT_TRUE(killed.code == 130 || killed.code == 0) << killed.err;
  ASSERT_EQ(fovea(command("parts", 40, resumed)).code, 0);
  EXPECT_EQ(read_text(checkpoint("parts")), read_text(checkpoint("whole")));
  const Ended other = fovea(command("parts", 40, {"--resume"}));
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(flat(other.err).find("model differs"), std::string::npos) << other.err;
}

TEST_F(Train, AnInterruptedRunContinuesToTheSameBits) {
  constexpr int kSteps = 150;
  ASSERT_EQ(fovea(command("whole", kSteps)).code, 0);
  int interrupts = 0;
  for (int run = 0; run < 20 && interrupts < 3; ++run) {
    std::vector<std::string> words = command("parts", kSteps, {"--threads", run % 2 == 0 ? "1" : "2"});
    if (run > 0) words.emplace_back("--resume");
    const Ended ended = fovea(words, signal_after("parts", 12, SIGINT));
    if (ended.code == 0) break;
    ASSERT_EQ(ended.code, 130) << ended.err;
    EXPECT_NE(ended.err.find("--resume"), std::string::npos) << ended.err;
    ++interrupts;
  }
  EXPECT_GT(interrupts, 0);
  const Ended last = fovea(command("parts", kSteps, {"--resume"}));
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_EQ(read_text(checkpoint("parts")), read_text(checkpoint("whole")));
  EXPECT_EQ(steps_of("parts"), steps_of("whole"));
  expect_valid_records(losses("parts"));
}

TEST_F(Train, AKilledRunContinuesFromItsLastCheckpoint) {
  constexpr int kSteps = 100;
  const std::vector<std::string> often{"--save-every", "10"}, on{"--save-every", "10", "--resume"};
  ASSERT_EQ(fovea(command("whole", kSteps, often)).code, 0);
  const Ended killed = fovea(command("parts", kSteps, often), signal_after("parts", 15, SIGKILL));
  ASSERT_EQ(killed.code, 128 + SIGKILL) << "it was faster than the kill";
  // No room for another checkpoint: the one that is there stays.
  const std::string before = read_text(checkpoint("parts"));
  const Ended stopped =
      fovea(command("parts", kSteps, on), {.file_size_limit = static_cast<std::int64_t>(before.size() / 2)});
  EXPECT_EQ(stopped.code, 3) << stopped.err;
  EXPECT_NE(stopped.err.find("could not be written"), std::string::npos) << stopped.err;
  EXPECT_NE(stopped.err.find("kept:   the checkpoint of step "), std::string::npos) << stopped.err;
  EXPECT_NE(stopped.err.find("make room, then "), std::string::npos) << stopped.err;
  EXPECT_EQ(read_text(checkpoint("parts")), before);
  EXPECT_FALSE(std::filesystem::exists(checkpoint("parts") + ".partial"));
  const Ended resumed = fovea(command("parts", kSteps, on));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(read_text(checkpoint("parts")), read_text(checkpoint("whole")));
  EXPECT_EQ(steps_of("parts"), steps_of("whole"));
}

// A kill before the first checkpoint of --save-every leaves the one that a training begins with.
TEST_F(Train, ARunThatIsKilledInItsFirstStepsCanBeResumed) {
  constexpr int kSteps = 60;
  ASSERT_EQ(fovea(command("whole", kSteps)).code, 0);
  ASSERT_EQ(fovea(command("parts", kSteps), signal_after("parts", 2, SIGKILL)).code, 128 + SIGKILL);
  ASSERT_EQ(fovea(command("parts", kSteps, {"--resume"})).code, 0);
  EXPECT_EQ(read_text(checkpoint("parts")), read_text(checkpoint("whole")));
  EXPECT_EQ(steps_of("parts"), steps_of("whole"));
}

TEST_F(Train, BeginsWithTheWeightsOfACheckpoint) {
  ASSERT_EQ(fovea(command("first", 40)).code, 0);
  const std::vector<std::string> taken{"--weights", checkpoint("first")};
  const Ended run = fovea(command("whole", 60, taken));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_NE(flat(run.err).find(checkpoint("first") + ": F32, names of Fovea"), std::string::npos) << run.err;
  const auto loss = [&](const std::string& output, int step) {
    return program::load_records(losses(output)).steps.at(step).loss;
  };
  EXPECT_LT(loss("whole", 1), loss("first", 1) - 1) << "random weights again";
  EXPECT_NEAR(loss("whole", 1), loss("first", 40), 0.5);
  // The state that it leaves has weights of its own, so that the command to resume goes without the file.
  const Ended stopped = fovea(command("parts", 60, taken), signal_after("parts", 3, SIGINT));
  ASSERT_EQ(stopped.code, 130) << stopped.err;
  EXPECT_EQ(flat(stopped.err).find("--weights"), std::string::npos) << stopped.err;
  ASSERT_EQ(fovea(command("parts", 60, {"--resume"})).code, 0);
  EXPECT_EQ(read_text(checkpoint("parts")), read_text(checkpoint("whole")));
}

TEST_F(Train, RefusesWeightsThatDoNotFit) {
  ASSERT_EQ(fovea(command("first", 4)).code, 0);
  const auto refusal = [&](const std::vector<std::string>& more) {
    const Ended run = fovea(command("none", 4, more));
    EXPECT_EQ(run.code, 2) << run.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "none")) << "nothing is begun";
    return flat(run.err);
  };
  const std::string file = checkpoint("first");
  EXPECT_NE(refusal({"--weights", file, "--hidden", "64"})
                .find("`layers.0.feed_forward.gate.weight` [48, 32] in " + file + " wanted: [64, 32]"),
            std::string::npos);
  EXPECT_NE(refusal({"--weights", file, "--resume"}).find("a resumed training has its own weights"), std::string::npos);
  EXPECT_NE(refusal({"--weights", folder_ / "missing"}).find("missing: No such file"), std::string::npos);
  std::string damaged = read_text(file);
  damaged[damaged.size() - 100] ^= 1;
  write_text(file, damaged);
  EXPECT_NE(refusal({"--weights", file}).find("damaged: its bytes are not the ones that were written"),
            std::string::npos);
}

TEST_F(Train, RefusesToResumeWithoutACheckpoint) {
  const Ended run = fovea(command("none", 4, {"--resume"}));
  EXPECT_EQ(run.code, 2) << run.err;
  EXPECT_NE(flat(run.err).find("there is no checkpoint to continue from"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find(checkpoint("none")), std::string::npos) << run.err;
  EXPECT_NE(flat(run.err).find("without --resume a training begins"), std::string::npos) << run.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "none")) << "nothing is begun";
  ASSERT_EQ(fovea(command("out", 4)).code, 0);
  std::filesystem::remove(checkpoint("out"));
  const Ended anew = fovea(command("out", 4));
  EXPECT_EQ(anew.code, 2) << anew.err;
  EXPECT_NE(flat(anew.err).find("the losses of a training without its checkpoint"), std::string::npos) << anew.err;
}

TEST_F(Train, RefusesCheckpointsThatDoNotFit) {
  ASSERT_EQ(fovea(command("out", 4)).code, 0);
  const std::string whole = read_text(checkpoint("out"));
  const auto expect_refused = [&](const std::vector<std::string>& words, const std::string& why) {
    const std::string before = read_text(checkpoint("out"));
    const Ended run = fovea(words);
    EXPECT_EQ(run.code, 2) << run.err;
    EXPECT_NE(flat(run.err).find(why), std::string::npos) << run.err;
    EXPECT_EQ(read_text(checkpoint("out")), before) << "nothing is overwritten";
  };
  const std::vector<std::string> resume = command("out", 4, {"--resume"});
  expect_refused(command("out", 4), "the folder holds a checkpoint");
  expect_refused(command("out", 5, {"--resume"}), "steps differs");
  expect_refused(command("out", 4, {"--resume", "--seed", "3"}), "seed differs");
  expect_refused(command("out", 4, {"--resume", "--hidden", "64"}), "model differs");
  std::string damaged = whole;
  damaged[damaged.size() - 100] ^= 1;
  write_text(checkpoint("out"), damaged);
  expect_refused(resume, "damaged: its bytes are not the ones that were written");
  for (const std::size_t length : {0u, 5u, 8u, 100u}) {
    write_text(checkpoint("out"), whole.substr(0, length));
    expect_refused(resume, "the checkpoint cannot be used");
  }
  write_text(checkpoint("out"), whole.substr(0, whole.size() - 4));
  expect_refused(resume, "the file was cut off");
  write_text(checkpoint("out"), whole + "more");
  expect_refused(resume, "holds bytes beside its tensors");
  std::string foreign = whole;
  foreign.replace(foreign.find("fovea.checkpoint/1"), 18, "foreign.checkpoint");
  write_text(checkpoint("out"), foreign);
  expect_refused(resume, "a safetensors file that is no checkpoint of fovea");
  std::string elsewhere = whole;  // of another device
  elsewhere.replace(elsewhere.find("\"device\":\"cpu\""), 14, "\"device\":\"gpu\"");
  write_text(checkpoint("out"), elsewhere);
  expect_refused(resume, "device differs");
  write_text(checkpoint("out"), whole);
  write_words(folder_ / "text/a", 901, 1);
  expect_refused(resume, "text_sha256 differs");
}

TEST_F(Train, RefusesOptionsThatMakeNoTraining) {
  const auto refusal = [&](const std::vector<std::string>& more) {
    const Ended run = fovea(command("none", 4, more));
    EXPECT_EQ(run.code, 2) << run.err;
    return flat(run.err);
  };
  EXPECT_NE(refusal({"--heads", "5"}).find("the width does not split into heads"), std::string::npos);
  EXPECT_NE(refusal({"--warm-up", "5"}).find("a warm-up longer than the training"), std::string::npos);
  EXPECT_NE(refusal({"--least-learning-rate", "1"}).find("above the largest learning rate"), std::string::npos);
  EXPECT_NE(refusal({"--force"}).find("only has an effect with --resume"), std::string::npos);
  EXPECT_NE(refusal({"--preset", "report-d1:sm"}).find("a preset has its own sizes"), std::string::npos);
  const Ended preset = fovea({"train", "--preset", "xl"});
  EXPECT_EQ(preset.code, 2) << preset.err;
  EXPECT_NE(flat(preset.err).find("no preset of this name"), std::string::npos) << preset.err;
  EXPECT_NE(refusal({"--text", folder_ / "missing"}).find("the text cannot be read"), std::string::npos);
  EXPECT_NE(refusal({"--text", folder_ / "text/short"}).find("no text of a useful length"), std::string::npos);
  EXPECT_NE(refusal({"-o", folder_ / "text/a"}).find("text/a: Not a directory"), std::string::npos);
  const Ended no_gpu = fovea(command("gpu", 4, {"--device", "cuda"}), {.environment = {"CUDA_VISIBLE_DEVICES="}});
  EXPECT_EQ(no_gpu.code, 4) << no_gpu.err;
  EXPECT_NE(no_gpu.err.find("fovea train: no device"), std::string::npos) << no_gpu.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "gpu")) << "nothing is begun";
  const Ended large = fovea(command("none", 4, {"--batch", "100000000"}));
  EXPECT_EQ(large.code, 1) << large.err;
  EXPECT_NE(flat(large.err).find("the plan is larger than the free memory"), std::string::npos) << large.err;
}

}  // namespace
}  // namespace fovea::tests

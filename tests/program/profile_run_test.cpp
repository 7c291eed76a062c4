// How a run of fovea profile goes: progress, interrupts, what it refuses before it begins, what does not fit.
#include <gtest/gtest.h>
#include <signal.h>

#include "program/profile/profile.h"
#include "run_program.h"
#include "small_profile.h"

namespace fovea::tests {
namespace {

TEST(ProfileRun, AnInterruptKeepsTheRowsThatAreThere) {
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  std::vector<std::string> words = small_profile({"-o", file});
  words[words.size() - 3] = "1000000";  // steps
  const Ended run = fovea(words, {.while_it_runs = [&](pid_t pid) {
                            for (int i = 0; i < 400 && read_text(file).empty(); ++i) usleep(10'000);
                            kill(pid, SIGINT);
                          }});
  EXPECT_EQ(run.code, 130) << run.err;
  expect_valid_records(file);
  EXPECT_NE(run.err.find("interrupted: kept 0 of 3 results in " + file), std::string::npos) << run.err;
}

TEST(ProfileRun, TellsItsProgress) {
  const Ended plain = fovea(small_profile({}));
  EXPECT_EQ(plain.err.find("[1/3] custom: checking against the reference\n[1/3] custom forward begins\n[1/3] custom forward fovea "), 0u) << plain.err;
  EXPECT_NE(plain.err.find("[3/3] custom step begins\n[3/3] custom step fovea "), std::string::npos) << plain.err;
  EXPECT_EQ(plain.err.find(" of 5 steps"), std::string::npos) << "a line that moves is for terminals: " << plain.err;
  const Ended shown = fovea(small_profile({}), {.terminal = true});
  EXPECT_NE(shown.out.find("\r\033[K[2/3] custom forward+backward: 1 of 5 steps"), std::string::npos) << shown.out;
  EXPECT_NE(shown.out.find("\r\033[K[3/3] custom step fovea "), std::string::npos) << shown.out;
}

TEST(ProfileRun, AnInterruptEndsTheSearchForTheLargestModel) {
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  const Ended run = fovea(small_profile({"--passes", "forward", "--memory", "-o", file}),
                          {.address_limit = 1'000'000'000, .while_it_runs = [&](pid_t pid) {
                             for (int i = 0; i < 400 && read_text(file).find("fovea.bench") == std::string::npos; ++i)
                               usleep(10'000);
                             kill(pid, SIGINT);
                           }});
  EXPECT_EQ(run.code, 130) << run.err;
  EXPECT_NE(run.err.find("interrupted: kept 1 of 1 results in " + file), std::string::npos) << run.err;
}

TEST(ProfileRun, ABatchBeyondTheMemoryIsARow) {
  const Ended run =
      fovea({"profile", "--batch", "2000000000", "--context", "1", "--passes", "forward", "--steps", "3"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.err.find("oom: planned "), std::string::npos) << run.err;
}

TEST(ProfileRun, RefusesRepeatsAndAFileThatExists) {
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  write_text(file, "something");
  for (const auto& [words, problem] :
       {std::pair<std::vector<std::string>, std::string>{{"-o", file}, "the file exists"},
        {{"--passes", "forward,step,forward"}, "named twice"}}) {
    const Ended run = fovea(small_profile(words));
    EXPECT_EQ(run.code, 2) << run.err;
    EXPECT_NE(run.err.find(problem), std::string::npos) << run.err;
  }
  EXPECT_EQ(read_text(file), "something");
}

}  // namespace
}  // namespace fovea::tests

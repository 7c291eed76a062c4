// Interrupts, kills and full disks: no finished row is ever lost, and a run can always be resumed.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

#include "run_program.h"

namespace fovea::tests {
namespace {

using program::load_records;
using program::Records;

std::string seeds(int count) {
  std::string text = "lq=4 d=4 seed=0";
  for (int i = 1; i < count; ++i) text += "," + std::to_string(i);
  return text;
}

std::vector<std::string> sweep_command(const std::string& file, int count) {
  return {"bench",        "--problem", seeds(count), "--impl", bad_kernel("right"),
          "--repeat-for", "0.001",     "--threads",  "1",      "--resume",
          "--yes",        "-o",        file};
}

void wait_ms(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

// Until the file holds the environment and some rows.
void wait_for_rows(const std::string& file, std::int64_t bytes) {
  std::error_code none;
  for (int i = 0; i < 1000; ++i) {
    if (std::filesystem::exists(file, none) &&
        static_cast<std::int64_t>(std::filesystem::file_size(file, none)) > bytes)
      return;
    wait_ms(5);
  }
}

class Signals : public testing::TestWithParam<int> {};

TEST_P(Signals, R45_EndPolitelyAndResume) {
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  const Ended run = fovea(sweep_command(file, 1000), {.while_it_runs = [&](pid_t pid) {
                            wait_for_rows(file, 5000);
                            kill(pid, GetParam());
                          }});
  EXPECT_EQ(run.code, 130) << run.err;
  EXPECT_NE(run.err.find(" of 1000 done; resume with "), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("--resume"), std::string::npos) << run.err;
  expect_valid_records(file);
  const std::size_t rows = load_records(file).rows.size();
  EXPECT_GT(rows, 0u);
  const Ended resumed = fovea(sweep_command(file, static_cast<int>(rows) + 3));
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(load_records(file).rows.size(), rows + 3);
  expect_valid_records(file);
}

INSTANTIATE_TEST_SUITE_P(Polite, Signals, testing::Values(SIGINT, SIGTERM, SIGHUP), [](const auto& test) {
  return std::string(test.param == SIGINT ? "INT" : test.param == SIGTERM ? "TERM" : "HUP");
});

TEST(Interrupts, R45_TheFirstAbandonsACellThatHangs) {
  const Folder folder;
  const Ended run = fovea({"bench", "--problem", "lq=8 d=4", "--impl", bad_kernel("hangs"), "-o", folder / "run.jsonl"},
                          {.while_it_runs = [&](pid_t pid) {
                            wait_for_rows(folder / "run.jsonl", 0);
                            wait_ms(100);
                            kill(pid, SIGINT);
                          }});
  EXPECT_EQ(run.code, 130);
  EXPECT_LT(run.seconds, 10);
  expect_valid_records(folder / "run.jsonl");
}

TEST(Interrupts, R44_AFullDiskStopsTheRunAndKeepsTheFile) {
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  const Ended run = fovea(sweep_command(file, 1000), {.file_size_limit = 20000});
  EXPECT_EQ(run.code, 3) << run.err;
  EXPECT_NE(run.err.find("disk is full"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("{\"schema\":\"fovea.bench/1\""), std::string::npos) << "the row is not shown: " << run.err;
  expect_valid_records(file);
  EXPECT_GT(load_records(file).rows.size(), 3u);
  EXPECT_EQ(load_records(file).warning, "");
  const Ended full = fovea(sweep_command(folder / "other.jsonl", 1000), {.file_size_limit = 400});
  EXPECT_EQ(full.code, 3) << full.err;
  EXPECT_NE(full.err.find("nothing was measured"), std::string::npos) << full.err;
}

// What is on disk as whole lines is what a killed run has promised.
std::set<std::string> keys_on_disk(const std::string& file) {
  std::set<std::string> keys;
  if (!std::filesystem::exists(file) || std::filesystem::file_size(file) == 0) return keys;
  const std::string text = read_text(file);
  if (text.find('\n') == std::string::npos) return keys;  // killed while the very first line was written
  for (const auto& row : load_records(file).rows) keys.insert(program::key_of(row));
  return keys;
}

TEST(Interrupts, B151_TwoHundredKillsLoseNoFinishedRow) {
  constexpr int kKills = 200, kCells = 1900;
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  std::set<std::string> finished;
  std::size_t measured = 0;
  std::uint64_t state = 7;
  for (int n = 0; n < kKills; ++n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const int delay = static_cast<int>((state >> 33) % 60);
    const auto size = std::filesystem::exists(file) ? static_cast<std::int64_t>(std::filesystem::file_size(file)) : 0;
    RunOptions options;
    if (n % 3 == 2) {
      options.file_size_limit = size + delay * 1000;
    } else {
      options.while_it_runs = [&](pid_t pid) {
        if (n % 4 != 0) wait_for_rows(file, size);  // every fourth dies while it starts, the others while they measure
        wait_ms(delay);
        kill(pid, n % 3 == 0 ? SIGINT : SIGKILL);
      };
    }
    const Ended run = fovea(sweep_command(file, kCells), options);
    const std::set<std::string> now = keys_on_disk(file);
    for (const auto& key : finished) ASSERT_TRUE(now.contains(key)) << "lost in run " << n << ": " << key;
    ASSERT_TRUE(n % 3 != 2 || run.code == 3) << run.code << run.err;
    measured += now.size() - finished.size();
    finished = now;
    if (finished.size() < kCells / 2) continue;
    std::filesystem::remove(file);
    finished.clear();
  }
  EXPECT_GT(measured, 500u) << "the kills came before anything was measured";
}

}  // namespace
}  // namespace fovea::tests

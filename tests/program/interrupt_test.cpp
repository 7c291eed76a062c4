// Interrupts, kills and full disks: no finished row is ever lost, and a run can always be resumed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <sstream>
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

TEST_P(Signals, EndCleanlyAndResume) {
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  const Ended run = fovea(sweep_command(file, 1000), {.while_it_runs = [&](pid_t pid) {
                            wait_for_rows(file, 12000);
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

TEST(Interrupts, TheFirstSignalAbandonsACellThatHangs) {
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

TEST(Interrupts, TheSecondSignalExitsAtOnce) {
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  const Ended run = fovea(sweep_command(file, 1000), {.while_it_runs = [&](pid_t pid) {
                            wait_for_rows(file, 12000);  // the command, which the environment holds, and some rows
                            // Stopped, the program can act on neither before it has both.
                            kill(pid, SIGSTOP);
                            kill(pid, SIGINT);
                            kill(pid, SIGTERM);
                            kill(pid, SIGCONT);
                          }});
  EXPECT_EQ(run.code, 130) << run.err;
  EXPECT_EQ(run.err.find("resume with"), std::string::npos) << "it took its time: " << run.err;
  expect_valid_records(file);
  EXPECT_GT(load_records(file).rows.size(), 0u);
}

TEST(Interrupts, AFullDiskStopsTheRunAndKeepsTheFile) {
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

// How many rows a run without a terminal has announced: "[40/1000] ..", for every tenth row.
std::size_t rows_announced(const std::string& err) {
  std::size_t rows = 0;
  std::istringstream lines(err.substr(0, err.rfind('\n') + 1));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('[')) rows = std::stoul(line.substr(1));
  }
  return rows;
}

// A file system that is full, as opposed to a file that may not grow: every write to it fails with ENOSPC.
TEST(Interrupts, NoSpaceLeftOnTheDevice) {
  const Folder folder;
  const std::string disk = folder / "disk";
  std::filesystem::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=32k") != 0)
    GTEST_SKIP() << "only root may make a small file system";
  const std::string file = disk + "/run.jsonl";
  const Ended run = fovea(sweep_command(file, 1000));
  EXPECT_EQ(run.code, 3) << run.err;
  EXPECT_NE(run.err.find("No space left on device"), std::string::npos) << run.err;
  expect_valid_records(file);
  const Records records = load_records(file);
  EXPECT_EQ(records.warning, "");
  EXPECT_EQ(rows_announced(run.err), keys_on_disk(file).size() / 10 * 10);
  EXPECT_GT(records.rows.size(), 3u);
  write_text(disk + "/rest", std::string(32768, 'x'));
  const Ended full = fovea(sweep_command(disk + "/other.jsonl", 1000));
  EXPECT_EQ(full.code, 3) << full.err;
  EXPECT_NE(full.err.find("nothing was measured"), std::string::npos) << full.err;
  umount2(disk.c_str(), MNT_DETACH);
}

TEST(Interrupts, TensorsBeyondAFileSizeLimitAreARow) {
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  const Ended run = fovea({"bench", "--problem", "lq=4,1k d=64", "--impl", "cpu.scalar", "--repeat-for", "0.001",
                           "--threads", "1", "--yes", "-o", file},
                          {.file_size_limit = 100'000});
  const auto rows = load_records(file).rows;
  ASSERT_EQ(rows.size(), 2u) << run.err;
  EXPECT_EQ(rows[0].status, "ok") << rows[0].reason;
  EXPECT_EQ(rows[1].status, "oom");
  EXPECT_EQ(rows[1].reason, "the tensors of the case could not be allocated: File too large, wanted 768 KiB");
}

TEST(Interrupts, TwoHundredKillsLoseNoFinishedRow) {
  constexpr int kKills = 200, kCells = 1900;
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  std::set<std::string> finished;
  std::size_t measured = 0, all_announced = 0;
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
    const std::size_t announced = rows_announced(run.err);
    ASSERT_GE(now.size(), announced) << "announced in run " << n;
    all_announced += announced > finished.size() ? announced - finished.size() : 0;
    for (const auto& key : finished) ASSERT_TRUE(now.contains(key)) << "lost in run " << n << ": " << key;
    ASSERT_TRUE(n % 3 != 2 || run.code == 3) << run.code << run.err;
    measured += now.size() - finished.size();
    finished = now;
    if (finished.size() < kCells / 2) continue;
    std::filesystem::remove(file);
    finished.clear();
  }
  EXPECT_GT(measured, 500u) << "the kills came before anything was measured";
  // Cells that end between two lines of progress are not announced, so how many are depends on the machine.
  EXPECT_GE(all_announced, measured / 10) << "progress is not read as it is written";
}

}  // namespace
}  // namespace fovea::tests

// Why a worker ended: who killed it, and how the out-of-memory killer is told from others.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "program/machine/oom_kills.h"
#include "program/worker/process.h"
#include "run_program.h"

namespace fovea::tests {
namespace {

namespace fs = std::filesystem;
using program::oom_kills;

// A worker that says once that it is well, and at the second command runs a line of shell.
program::WorkerFailure failure_of(const std::string& line, const std::string& root) {
  const program::SharedBlock inputs("test inputs");
  const std::string script = "read x <&5; echo '{\"ok\":true}' >&6; read x <&5; " + line;
  program::WorkerProcess worker({{"/bin/sh", "-c", script}, 1, 0, root}, inputs);
  worker.call({{"command", "run"}}, 10);
  try {
    worker.call({{"command", "run"}}, 10);
  } catch (const program::WorkerFailure& failure) {
    return failure;
  }
  return {"ok", "it lives"};
}

class KilledWorker : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "proc");
    write_text(folder_ / "proc/vmstat", "nr_free_pages 12\noom_kill 4\n");
  }
  Folder folder_;
};

TEST_F(KilledWorker, IsOutOfMemoryIfTheSystemCountedAKill) {
  const auto failure = failure_of("echo 'oom_kill 5' > " + folder_ / "proc/vmstat" + "; kill -KILL $$", folder_ / "");
  EXPECT_EQ(failure.status, "oom") << failure.reason;
}

TEST_F(KilledWorker, IsCrashedIfSomebodyElseKilledIt) {
  const auto failure = failure_of("kill -KILL $$", folder_ / "");
  EXPECT_EQ(failure.status, "crashed");
  EXPECT_NE(failure.reason.find("Killed"), std::string::npos) << failure.reason;
}

TEST_F(KilledWorker, ReportsAFailedAllocationItself) {
  const auto failure = failure_of("echo \"  what():  std::bad_alloc\" >&2; kill -ABRT $$", folder_ / "");
  EXPECT_EQ(failure.status, "oom") << failure.reason;
}

// A container's entry point is process 1, the parent of its workers as well as of orphans.
TEST(WorkerProcess, RunsUnderAParentWithPid1) {
  const pid_t outer = fork();
  ASSERT_GE(outer, 0);
  if (outer == 0) {
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(2);
    const pid_t first = fork();
    if (first == 0) _exit(getpid() == 1 && failure_of("exit 3", "").status == "crashed" ? 0 : 1);
    int status = -1;
    waitpid(first, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 3);
  }
  int status = -1;
  ASSERT_EQ(waitpid(outer, &status, 0), outer);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "this system grants no namespace of processes";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(OomKills, AreCountedInTheControlGroupIfPossible) {
  const Folder folder;
  const std::string root = folder / "";
  EXPECT_EQ(oom_kills(root), 0) << "nothing is told";
  for (const char* below : {"proc/self", "sys/fs/cgroup/memory/box", "sys/fs/cgroup/mine"})
    fs::create_directories(folder / below);
  write_text(folder / "proc/vmstat", "oom_kill 9\n");
  EXPECT_EQ(oom_kills(root), 9);
  write_text(folder / "proc/self/cgroup", "4:memory:/box\n1:cpu:/box\n0::/\n");
  EXPECT_EQ(oom_kills(root), 9) << "the group's own counter cannot be read";
  write_text(folder / "sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  EXPECT_EQ(oom_kills(root), 2) << "a container sees its group at the root";
  write_text(folder / "sys/fs/cgroup/memory/box/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  EXPECT_EQ(oom_kills(root), 3);
  write_text(folder / "proc/self/cgroup", "0::/mine\n");
  write_text(folder / "sys/fs/cgroup/mine/memory.events", "low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\n");
  EXPECT_EQ(oom_kills(root), 1);
}

}  // namespace
}  // namespace fovea::tests

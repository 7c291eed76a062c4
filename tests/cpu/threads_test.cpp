// The pool, and that no result depends on who computed it: thread counts, an external pool, callers at once, forks,
// cancel.
#include "cpu/threads.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "core/environment.h"
#include "core/processors.h"
#include "engine.h"

namespace fovea::cpu {
namespace {

using verification::AttentionCase;
using verification::CaseTensors;
using verification::HostTensor;

CaseTensors solve(const AttentionCase& c, const AttentionOptions& options) {
  CaseTensors tensors = verification::make_tensors(c);
  attention_forward(tensors.forward(), options);
  attention_backward(tensors.backward(), options);
  return tensors;
}

void expect_same_bits(const CaseTensors& a, const CaseTensors& b, const std::string& at) {
  const std::pair<const HostTensor*, const HostTensor*> pairs[] = {
      {&a.out, &b.out}, {&a.lse, &b.lse}, {&a.dq, &b.dq}, {&a.dk, &b.dk}, {&a.dv, &b.dv}};
  for (const auto& [x, y] : pairs) {
    EXPECT_EQ(std::memcmp(x->view().data, y->view().data, static_cast<std::size_t>(x->view().buffer_bytes)), 0) << at;
  }
}

// Few and many sequences, several chunks of keys, waves of one sequence and more, heads in groups, few queries.
const char* const kLines[] = {
    "pass=e2e b=1 hq=1 lq=700 lk=1700 d=16 mask=causal_bottom_right seed=1",
    "pass=e2e b=1 hq=4 hkv=2 lq=130 lk=1100 d=24 dtype=bf16 seed=2",
    "pass=e2e b=1 hq=4 hkv=4 lq=500 lk=200 d=8 seed=8",
    "pass=e2e b=1 hq=4 hkv=2 lq=2 lk=5000 d=32 mask=window_bottom_right left=3000 right=0 seed=6",
    "pass=e2e b=1 hq=1 lq=16 lk=3000 d=32 dtype=bf16 seed=7",
    "pass=e2e b=3 hq=6 hkv=6 lq=50 lk=40 d=8 mask=causal_top_left seed=3"};

TEST(Threads, AnyNumberGivesTheSameBits) {
  for (const char* line : kLines) {
    const AttentionCase c = verification::attention_case(line);
    for (const std::string& name : of_this_machine(c.problem)) {
      const CaseTensors one = solve(c, forced(c, name, 1));
      for (const int threads : {2, 3, 4, 8}) expect_same_bits(one, solve(c, forced(c, name, threads)), name + line);
    }
  }
}

// Calls as short as the pool's wake-up, so that a task is taken by the worker in some and taken back in others.
TEST(Threads, AHundredThousandSmallCallsGiveTheSameBits) {
  const AttentionCase c = verification::attention_case("b=1 hq=1 lq=2 lk=1153 d=8 seed=8");
  const CaseTensors tensors = verification::make_tensors(c);
  const auto call = [&](int threads) { attention_forward(tensors.forward(), {.threads = threads}); };
  const auto bits = [&] {
    const auto* const first = static_cast<const char*>(tensors.out.view().data);
    return std::string(first, first + tensors.out.view().buffer_bytes);
  };
  call(1);
  const std::string expected = bits();
  for (int n = 0; n < 100'000; ++n) {
    call(2 + n % 3);
    ASSERT_EQ(bits(), expected) << n;
  }
}

TEST(Threads, AnExternalPoolIsUsedAndGivesTheSameBits) {
  struct Host {
    std::atomic<std::int64_t> tasks{0};
  } host;
  // Hands tasks to fresh threads, the last index first.
  const ExternalThreadPool thread_pool{
      3, &host, [](void* self, std::int64_t count, void (*task)(void*, std::int64_t, int), void* argument) {
        std::vector<std::thread> threads;
        for (std::int64_t i = count - 1; i >= 0; --i) {
          threads.emplace_back([=] { task(argument, i, static_cast<int>(i)); });
          ++static_cast<Host*>(self)->tasks;
        }
        for (auto& thread : threads) thread.join();
      }};
  for (const char* line : kLines) {
    const AttentionCase c = verification::attention_case(line);
    AttentionOptions options = forced(c, "cpu.scalar", 0);
    options.thread_pool = &thread_pool;
    expect_same_bits(solve(c, forced(c, "cpu.scalar")), solve(c, options), line);
  }
  EXPECT_GT(host.tasks, 0);
}

TEST(Threads, AnExternalPoolThatSkipsATaskIsAnError) {
  using RunTasks = void (*)(void*, std::int64_t, void (*)(void*, std::int64_t, int), void*);
  const RunTasks none = [](void*, std::int64_t, void (*)(void*, std::int64_t, int), void*) {};
  const RunTasks not_the_last = [](void*, std::int64_t count, void (*task)(void*, std::int64_t, int), void* argument) {
    for (std::int64_t i = 0; i + 1 < count; ++i) task(argument, i, 0);
  };
  const RunTasks beyond_the_last = [](void*, std::int64_t count, void (*task)(void*, std::int64_t, int),
                                      void* argument) {
    for (std::int64_t i = 1; i <= count; ++i) task(argument, i, 0);
  };
  const AttentionCase c = verification::attention_case("pass=e2e b=2 hq=4 lq=130 lk=110 d=16");
  for (const RunTasks run : {none, not_the_last, beyond_the_last}) {
    const ExternalThreadPool thread_pool{3, nullptr, run};
    AttentionOptions options = forced(c, "cpu.scalar", 0);
    options.thread_pool = &thread_pool;
    try {
      solve(c, options);
      ADD_FAILURE() << "nothing was said";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::error);
      EXPECT_EQ(error.details().argument, "thread_pool");
    }
  }
}

TEST(Threads, SimultaneousCallers) {
  const AttentionCase c = verification::attention_case("pass=e2e b=1 hq=2 lq=130 lk=90 d=16 seed=4");
  const CaseTensors expected = solve(c, forced(c, "cpu.scalar"));
  std::vector<std::thread> callers;
  for (int n = 0; n < 8; ++n) {
    callers.emplace_back([&] {
      for (int i = 0; i < 20; ++i) expect_same_bits(expected, solve(c, forced(c, "cpu.scalar", 4)), "concurrent");
    });
  }
  for (auto& caller : callers) caller.join();
}

TEST(Threads, AForkedChildComputes) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer ends a forked child that starts threads";
#endif
  const AttentionCase c = verification::attention_case("pass=e2e b=1 hq=2 lq=130 lk=90 d=16 seed=5");
  const CaseTensors expected = solve(c, forced(c, "cpu.scalar", 4));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const CaseTensors tensors = solve(c, forced(c, "cpu.scalar", 4));
    const auto& out = tensors.out.view();
    _exit(std::memcmp(out.data, expected.out.view().data, static_cast<std::size_t>(out.buffer_bytes)) == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Tasks so short that the caller takes back most of them while their workers wake.
TEST(Threads, EachTaskRunsOnceWhoeverTakesIt) {
  struct Counts {
    std::array<std::atomic<int>, 4> of_index{};
  } counts;
  const int calls = 20000;
  for (int n = 1; n <= calls; ++n) {
    run_tasks(
        nullptr, 4,
        [](void* argument, int index) { ++static_cast<Counts*>(argument)->of_index.at(std::size_t(index)); }, &counts);
    for (const auto& count : counts.of_index) ASSERT_EQ(count, n);
  }
}

// Each of two tasks waits until the other has begun.
TEST(Threads, TheOwnPoolRunsTasksAtOnce) {
  std::atomic<int> begun{0}, met{0};
  std::pair counts{&begun, &met};
  run_tasks(
      nullptr, 2,
      [](void* argument, int) {
        auto& [entered, together] = *static_cast<decltype(counts)*>(argument);
        ++*entered;
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (*entered < 2 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
        if (*entered == 2) ++*together;
      },
      &counts);
  EXPECT_EQ(met, 2);
}

TEST(Threads, ACallInsideATaskRunsOnTheTasksThread) {
  std::atomic<int> elsewhere{0};
  run_tasks(
      nullptr, 2,
      [](void* outer, int) {
        std::pair here{std::this_thread::get_id(), static_cast<std::atomic<int>*>(outer)};
        for (int n = 0; n < 100; ++n)
          run_tasks(
              nullptr, 3,
              [](void* argument, int) {
                const auto& [caller, others] = *static_cast<decltype(here)*>(argument);
                if (std::this_thread::get_id() != caller) ++*others;
              },
              &here);
      },
      &elsewhere);
  EXPECT_EQ(elsewhere, 0);
}

TEST(Threads, EveryItemRunsOnceAndWorkersDoNotOverlap) {
  for (const int workers : {1, 2, 4}) {
    std::vector<int> done(1000, 0);
    std::vector<std::atomic<int>> inside(4);
    EXPECT_TRUE(for_each_item(nullptr, workers, 1000, [&](std::int64_t item, int worker) {
      EXPECT_EQ(inside[static_cast<std::size_t>(worker)]++, 0);
      ++done[static_cast<std::size_t>(item)];
      --inside[static_cast<std::size_t>(worker)];
      return true;
    }));
    for (const int times : done) EXPECT_EQ(times, 1);
  }
}

TEST(Threads, AnItemThatReturnsFalseStopsTheRest) {
  std::atomic<int> done{0};
  EXPECT_FALSE(for_each_item(nullptr, 2, 100000, [&](std::int64_t item, int) { return ++done, item != 10; }));
  EXPECT_LT(done, 100000);
}

// Workers spin for a moment after a call, then sleep.
TEST(Threads, IdleWorkersTakeNoProcessorTime) {
  EXPECT_TRUE(for_each_item(nullptr, 3, 100, [](std::int64_t, int) { return true; }));
  const auto seconds = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };  // of all threads
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  EXPECT_LT(seconds() - before, 0.1);
}

TEST(Threads, ARaisedFlagCancels) {
  const AttentionCase c = verification::attention_case("pass=e2e b=1 hq=1 lq=300 lk=300 d=16");
  const std::atomic<bool> raised{true};
  for (const std::string& name : of_this_machine(c.problem)) {
    const CaseTensors tensors = solve(c, forced(c, name));
    AttentionOptions options = forced(c, name, 2);
    options.cancel = &raised;
    EXPECT_EQ(status_of([&] { attention_forward(tensors.forward(), options); }), Status::cancelled);
    EXPECT_EQ(status_of([&] { attention_backward(tensors.backward(), options); }), Status::cancelled);
  }
}

class ControlGroups : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path whole = root_ + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  int processors() const { return core::control_group_processors(root_ + "/membership", root_ + "/mount"); }
  std::string root_ = testing::TempDir() + "fovea_groups_" + std::to_string(getpid()) + "_" +
                      testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(ControlGroups, TheSmallestQuotaOfVersion2) {
  write("/membership", "0::/a/b\n");
  write("/mount/a/b/cpu.max", "max 100000\n");
  write("/mount/a/cpu.max", "350000 100000\n");
  EXPECT_EQ(processors(), 3);
}

TEST_F(ControlGroups, AQuotaBelowOneProcessor) {
  write("/membership", "0::/\n");
  write("/mount/cpu.max", "50000 100000\n");
  EXPECT_EQ(processors(), 1);
}

TEST_F(ControlGroups, Version1AndAPathThatOnlyTheHostKnows) {
  write("/membership", "4:cpu,cpuacct:/docker/123\n3:memory:/x\n");
  write("/mount/cpu/cpu.cfs_quota_us", "200000\n");
  write("/mount/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processors(), 2);
}

TEST_F(ControlGroups, NoLimit) {
  write("/membership", "4:cpu:/\n");
  write("/mount/cpu/cpu.cfs_quota_us", "-1\n");
  write("/mount/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processors(), 0);
}

TEST(DefaultThreads, FollowTheEnvironmentVariable) {
  EXPECT_EQ(core::thread_count_of("3"), 3);
  EXPECT_EQ(core::thread_count_of("1"), 1);
  for (const char* text : {"none", "0", "-1", "3x", "4097"}) EXPECT_THROW(core::thread_count_of(text), Error) << text;
  if (core::environment("FOVEA_THREADS").empty()) {
    EXPECT_EQ(default_threads(), core::available_processors());
  }
}

}  // namespace
}  // namespace fovea::cpu

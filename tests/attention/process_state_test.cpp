// What a call takes from its process and its thread, and what it leaves there: environment, floating-point mode,
// affinity, signals, forks.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "attention/small_call.h"
#include "core/memory.h"

namespace fovea {
namespace {

constexpr int kSequences = 8;  // tasks for every thread

// A forked child forgets the pool of threads, so that its own are started by the call under test.
void expect_in_child(const std::function<bool()>& holds) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    _exit(holds() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Inputs are exact in every rounding mode.
std::vector<float> forward_of_subnormals(int threads) {
  Call call(kSequences);
  call.v.assign(call.v.size(), 3e-42f);
  for (std::size_t i = 0; i < call.q.size(); ++i) call.q[i] = static_cast<float>(i % 7) * 0.25f;
  for (std::size_t i = 0; i < call.k.size(); ++i) call.k[i] = static_cast<float>(i % 5) * 0.5f;
  call.options.threads = threads;
  attention_forward(call.forward, call.options);
  call.out.insert(call.out.end(), call.lse.begin(), call.lse.end());
  return call.out;
}

#if defined(__x86_64__)
constexpr unsigned kFlushToZero = 0x8040, kFlags = 0x3f;

TEST(ProcessState, ResultsDoNotDependOnTheCallersFloatingPointMode) {
  const std::vector<float> expected = forward_of_subnormals(1);
  EXPECT_GT(expected[0], 0.0f);
  for (const int threads : {1, 2, 4}) {
    expect_in_child([&] {
      std::fesetround(FE_UPWARD);
      __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | kFlushToZero);
      const unsigned before = __builtin_ia32_stmxcsr() & ~kFlags;
      const bool same = forward_of_subnormals(threads) == expected;
      return same && (__builtin_ia32_stmxcsr() & ~kFlags) == before && std::fegetround() == FE_UPWARD;
    });
  }
}

TEST(ProcessState, WorkersDoNotKeepTheFirstCallersFloatingPointMode) {
  const std::vector<float> expected = forward_of_subnormals(1);
  expect_in_child([&] {
    const unsigned before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | kFlushToZero);
    forward_of_subnormals(4);
    __builtin_ia32_ldmxcsr(before);
    bool same = true;
    for (int i = 0; i < 20; ++i) same = same && forward_of_subnormals(4) == expected;
    return same;
  });
}

TEST(ProcessState, ExternalThreadsComputeInTheDefaultFloatingPointMode) {
  const std::vector<float> expected = forward_of_subnormals(1);
  const ExternalThreadPool thread_pool{
      2, nullptr, [](void*, std::int64_t count, void (*task)(void*, std::int64_t, int), void* argument) {
        std::thread([=] {
          __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | kFlushToZero);
          for (std::int64_t i = 0; i < count; ++i) task(argument, i, 0);
        }).join();
      }};
  Call call(kSequences);
  call.v.assign(call.v.size(), 3e-42f);
  call.options.thread_pool = &thread_pool;
  attention_forward(call.forward, call.options);
  EXPECT_GT(call.out[0], 0.0f);
}
#endif

cpu_set_t affinity_of(pid_t thread) {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(thread, sizeof set, &set);
  return set;
}

// Threads of this process besides the calling one; -1 if one of them has another affinity.
int workers_with(const cpu_set_t& affinity) {
  int workers = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    const pid_t thread = std::stoi(entry.path().filename().string());
    if (thread == getpid()) continue;
    ++workers;
    const cpu_set_t its = affinity_of(thread);
    if (!CPU_EQUAL(&its, &affinity)) return -1;
  }
  return workers;
}

TEST(ProcessState, WorkersRunOnTheProcessorsOfTheProcess) {
  expect_in_child([] {
    const cpu_set_t before = affinity_of(0);
    const int threads_before = default_threads();
    cpu_set_t one;
    CPU_ZERO(&one);
    for (std::size_t i = 0; CPU_COUNT(&one) == 0; ++i) {
      if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
    }
    sched_setaffinity(0, sizeof one, &one);
    forward_of_subnormals(4);
    // The call may end before a worker has begun and left the caller's processor.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (workers_with(before) != 3 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    return workers_with(before) == 3 && default_threads() == threads_before;
  });
}

std::atomic<int> handled{0};

TEST(ProcessState, WorkersReceiveNoSignals) {
  expect_in_child([] {
    signal(SIGUSR1, [](int) { ++handled; });
    forward_of_subnormals(4);
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &wanted, nullptr);
    kill(getpid(), SIGUSR1);
    const timespec patience{5, 0};
    return sigtimedwait(&wanted, nullptr, &patience) == SIGUSR1 && handled == 0;
  });
}

TEST(ProcessState, EnvironmentIsReadWhenTheLibraryIsLoaded) {
  const int threads = default_threads();
  expect_in_child([&] {
    setenv("FOVEA_IMPL", "nothing", 1);
    setenv("FOVEA_THREADS", "nothing", 1);
    setenv("FOVEA_CPU_ISA", "nothing", 1);
    return !forward_of_subnormals(0).empty() && default_threads() == threads;
  });
}

TEST(ProcessState, CallsWhileTheEnvironmentChanges) {
  expect_in_child([] {
    std::atomic<bool> stop{false};
    std::thread changing([&] {
      for (int i = 0; !stop; ++i) setenv(("FOVEA_TEST_" + std::to_string(i % 4096)).c_str(), "some text", 1);
    });
    for (int i = 0; i < 2000; ++i) forward_of_subnormals(0);
    stop = true;
    changing.join();
    return true;
  });
}

// A thread that is in the cache while another forks leaves no lock behind in the child.
TEST(ProcessState, ForkDuringACallLeavesTheChildWorkspaces) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a fork of a threaded process is beyond the thread sanitizer";
#endif
  std::atomic<bool> stop{false};
  std::vector<std::thread> callers;
  for (int n = 0; n < 3; ++n) {
    callers.emplace_back([&] {
      while (!stop) core::WorkspaceLease(4096, "test");
    });
  }
  for (int n = 0; n < 40 && !HasFailure(); ++n) {
    expect_in_child([] {
      alarm(20);
      return forward_of_subnormals(2).size() > 0;
    });
  }
  stop = true;
  for (auto& caller : callers) caller.join();
}

}  // namespace
}  // namespace fovea

// What calls leave behind and share: poisoned workspaces, repeated and changed calls, threads, fork, cancellation.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "attention/engines.h"
#include "core/memory.h"
#include "verification/differential.h"
#include "verification/problem_line.h"

namespace fovea {
namespace {

// The caller's workspace of exactly the advertised size, full of NaN, its end at a protected page.
TEST(State, GarbageInTheWorkspaceChangesNothing) {
  for (const char* line :
       {"pass=e2e b=2 hq=4 hkv=2 lq=65 lk=97 d=40 dtype=bf16", "pass=e2e b=1 hq=1 lq=300 d=64 mask=causal",
        "pass=e2e b=2 hq=3 lq=1 lk=33 d=128 dtype=fp16"}) {
    const verification::Case c = verification::parse_case(line);
    for (const auto& implementation : c.operation->implementations()) {
      if (!implementation.unavailable.empty()) continue;
      const auto outcome = verification::Differential(c, {.own_workspace = true}).run(implementation);
      EXPECT_NE(outcome.kind, verification::Outcome::Kind::failed) << implementation.name << ": " << line << "\n"
                                                                   << outcome.reason;
    }
  }
}

TEST(State, RepeatedCallsAndThreadCountsGiveTheSameBits) {
  for (const char* line : {"pass=e2e b=2 hq=6 hkv=2 lq=130 lk=257 d=40 mask=causal_bottom_right",
                           "pass=e2e b=1 hq=1 lq=513 d=64", "pass=e2e b=5 hq=3 lq=17 d=128 dtype=bf16"}) {
    const verification::AttentionCase c = verification::attention_case(line);
    for (const std::string& engine : engines()) {
      if (engine == "reference" || !takes(engine, backward_of(c.problem))) continue;
      SCOPED_TRACE(engine + ": " + line);
      const auto first = solved_by(engine, c);
      for (const int threads : {1, 2, 3, 4, 7, 8}) {
        auto again = verification::make_tensors(c);
        AttentionOptions options = options_on(engine, c);
        options.threads = threads;
        attention_forward(again.forward(), options);
        attention_backward(again.backward(), options);
        EXPECT_EQ(values_of(first.out.view()), values_of(again.out.view())) << threads;
        EXPECT_EQ(values_of(first.dq.view()), values_of(again.dq.view())) << threads;
        EXPECT_EQ(values_of(first.dk.view()), values_of(again.dk.view())) << threads;
        EXPECT_EQ(values_of(first.dv.view()), values_of(again.dv.view())) << threads;
      }
    }
  }
}

// One attribute changed at a time: nothing of an earlier call is remembered.
TEST(State, ChangingOneAttributeChangesTheCall) {
  for (const std::string& engine : engines_of_all_types()) {
    for (int round = 0; round < 2; ++round) {
      for (const char* change : {"", "scale=0.5", "mask=causal", "dtype=bf16", "layout=blhd", "d=32 dv=64",
                                 "lk=65 mask=none", "place=strided", "data=peaked", "hkv=1"}) {
        expect_right({engine}, "pass=e2e b=1 hq=2 lq=64 " +
                                   std::string(std::strstr(change, "d=32") != nullptr ? "" : "d=64 ") + change);
      }
    }
  }
}

// Small problems of every kind, and what each of them gives when it runs alone with one thread.
struct MixedCalls {
  std::vector<verification::AttentionCase> cases;
  std::vector<std::string> engine_of;
  std::vector<std::vector<float>> expected;  // out, then dk

  MixedCalls() {
    for (const std::string& engine : engines_of_all_types()) {
      for (const char* line : {"pass=e2e b=1 hq=2 lq=40 d=16", "pass=e2e b=2 hq=2 hkv=1 lq=9 lk=70 d=64 dtype=bf16",
                               "pass=e2e b=1 hq=1 lq=100 d=24 mask=causal", "pass=e2e b=3 hq=1 lq=1 d=128 dtype=fp16",
                               "pass=e2e b=1 hq=1 lq=7 lk=200 d=8 layout=blhd"}) {
        cases.push_back(verification::attention_case(line));
        engine_of.push_back(engine);
        expected.push_back(run(cases.size() - 1, 1));
      }
    }
  }
  std::vector<float> run(std::size_t which, int threads) const {
    const verification::AttentionCase& c = cases[which];
    const auto tensors = verification::make_tensors(c);
    AttentionOptions options = options_on(engine_of[which], c);
    options.threads = threads;
    attention_forward(tensors.forward(), options);
    attention_backward(tensors.backward(), options);
    std::vector<float> values = values_of(tensors.out.view());
    const std::vector<float> dk = values_of(tensors.dk.view());
    values.insert(values.end(), dk.begin(), dk.end());
    return values;
  }
};

// Eight threads call at the same time, each in another order; threads_of says how many threads a call asks for.
void expect_the_same_from_eight(std::size_t calls, int (*threads_of)(std::size_t caller, std::size_t n)) {
  const MixedCalls mixed;
  std::vector<std::thread> callers;
  std::atomic<int> wrong = 0;
  for (std::size_t caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&, caller] {
      for (std::size_t n = 0; n < calls; ++n) {
        const std::size_t which = (caller * 3 + n * (1 + caller % 3)) % mixed.cases.size();
        if (mixed.run(which, threads_of(caller, n)) != mixed.expected[which]) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(State, CallsFromManyThreads) {
  expect_the_same_from_eight(150, [](std::size_t, std::size_t) { return 0; });
}

// Scratch memory is sized and used with one and the same number of threads, whatever other calls ask for meanwhile.
TEST(State, ThreadCountsChangeConcurrently) {
  expect_the_same_from_eight(150,
                             [](std::size_t caller, std::size_t n) { return 1 + static_cast<int>(caller + n) % 5; });
}

TEST(State, ACallAfterForkWorks) {
  for (const std::string& engine : engines_of_all_types()) {
    const std::string line = "pass=e2e b=2 hq=4 lq=70 d=32";
    const auto parent = solved_by(engine, line);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);  // a child that waits for threads it does not have would wait for ever
      bool same = true;
      for (const int threads : {0, 1, 3}) {
        const verification::AttentionCase c = verification::attention_case(line);
        auto tensors = verification::make_tensors(c);
        AttentionOptions options = options_on(engine, c);
        options.threads = threads;
        attention_forward(tensors.forward(), options);
        attention_backward(tensors.backward(), options);
        same = same && values_of(tensors.out.view()) == values_of(parent.out.view()) &&
               values_of(tensors.dk.view()) == values_of(parent.dk.view());
      }
      _exit(same ? 0 : 7);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << engine << " status " << status;
    expect_right({engine}, line);  // and the parent goes on
  }
}

TEST(State, ARaisedCancelFlagEndsTheCall) {
  const std::atomic<bool> raised = true;
  for (const std::string& engine : engines_of_all_types()) {
    const verification::AttentionCase c = verification::attention_case("pass=e2e b=2 hq=4 lq=200 d=32");
    const auto tensors = verification::make_tensors(c);
    AttentionOptions options = options_on(engine, c);
    options.cancel = &raised;
    for (const bool forward : {true, false}) {
      try {
        forward ? attention_forward(tensors.forward(), options) : attention_backward(tensors.backward(), options);
        ADD_FAILURE() << engine << " ran to its end";
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::cancelled) << engine << error.what();
      }
    }
    EXPECT_EQ(core::memory_count().current, 0) << engine;
    expect_right({engine}, "pass=e2e b=2 hq=4 lq=40 d=32");
  }
}

// A host's own threads: every index once, worker numbers within bounds.
struct Host {
  std::atomic<std::int64_t> tasks = 0;
  static void run(void* host, std::int64_t count, void (*task)(void*, std::int64_t, int), void* argument) {
    auto& self = *static_cast<Host*>(host);
    std::thread second([&] {
      for (std::int64_t n = 1; n < count; n += 2) task(argument, n, 1);
    });
    for (std::int64_t n = 0; n < count; n += 2) task(argument, n, 0);
    second.join();
    self.tasks += count;
  }
};

TEST(State, AnExternalThreadPoolGivesTheSameBits) {
  for (const std::string& engine : engines_of_all_types()) {
    const verification::AttentionCase c = verification::attention_case("pass=e2e b=2 hq=4 hkv=2 lq=130 d=32");
    const auto own = solved_by(engine, c), pooled = verification::make_tensors(c);
    Host host;
    const ExternalThreadPool thread_pool{.threads = 2, .host = &host, .run = Host::run};
    AttentionOptions options = options_on(engine, c);
    options.thread_pool = &thread_pool;
    attention_forward(pooled.forward(), options);
    attention_backward(pooled.backward(), options);
    EXPECT_EQ(values_of(own.out.view()), values_of(pooled.out.view())) << engine;
    EXPECT_EQ(values_of(own.dk.view()), values_of(pooled.dk.view())) << engine;
    EXPECT_TRUE(host.tasks > 0 || engine == "reference") << engine;
  }
}

}  // namespace
}  // namespace fovea

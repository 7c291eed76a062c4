// The choice among the implementations of an operation, and the cache of plans behind it.
#include "core/choose.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <latch>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fovea/error.h"

namespace fovea::core {
namespace {

// An operation whose implementations predict `variant` microseconds for each unit of the problem's size.
struct Types {
  struct Problem {
    int size = 1;
    Device device{};
    bool reproducible = true;
    bool operator==(const Problem&) const = default;
  };
  struct ForwardTensors {};
  struct BackwardTensors {};
  static std::string line(const Problem& problem) { return "op=test size=" + std::to_string(problem.size); }
  // A third of the problems share a hash with two others.
  static std::size_t hash(const Problem& problem) { return hash_of(problem.size / 3); }
  static bool asks_reproducible(const Problem& problem) { return problem.reproducible; }
  static ImplementationList<Types>& list();
  static std::string_view requested(std::string_view name) { return name; }
};

std::atomic<int> living_plans{0};

struct SizedPlan final : Plan {
  explicit SizedPlan(int s) : size(s) { ++living_plans; }
  ~SizedPlan() override { --living_plans; }
  SizedPlan(const SizedPlan&) = delete;
  std::string line() const override { return {}; }
  int size;
};

Prepared prepare(const Types::Problem& problem, int variant) {
  if (problem.size < 0) return {.refusal = "takes no negative size"};
  auto plan = std::make_shared<SizedPlan>(problem.size);
  plan->seconds = 1e-6 * variant * problem.size;
  return {.plan = std::move(plan)};
}

Implementation<Types> entry(std::string_view name, int variant, bool automatic = true) {
  return {.name = name,
          .variant = variant,
          .automatic = automatic,
          .unavailable = [](int) { return std::string(); },
          .prepare = prepare};
}

std::unique_ptr<ImplementationList<Types>> the_list;
ImplementationList<Types>& Types::list() { return *the_list; }

using TestChooser = Chooser<Types>;

std::string chosen(int size, std::string_view name = {}) {
  const Types::Problem problem{.size = size};
  return std::string(TestChooser(problem, name).choose("test")->implementation->name);
}

class Choose : public testing::Test {
 protected:
  static void fill(std::initializer_list<Implementation<Types>> entries) {
    the_list = std::make_unique<ImplementationList<Types>>();
    the_list->add(entries);
    static int lists = 0;
    for (int n = 8 * ++lists; n > 0; --n) the_list->add({});  // no list has the generation of another
  }
};

TEST_F(Choose, TheFirstThatTakesTheProblemLeads) {
  fill({entry("first", 0), entry("second", 0)});
  EXPECT_EQ(chosen(1), "first");
  EXPECT_EQ(chosen(1, "second"), "second");
}

TEST_F(Choose, ALaterOneReplacesItOnlyIfBothPredictATime) {
  fill({entry("slow", 3), entry("silent", 0), entry("fast", 2), entry("faster, when named", 1, false)});
  EXPECT_EQ(chosen(1), "fast");
  EXPECT_EQ(chosen(1, "slow"), "slow");
  EXPECT_EQ(chosen(1, "faster, when named"), "faster, when named");
  fill({entry("silent", 0), entry("fast", 1)});
  EXPECT_EQ(chosen(1), "silent");
  fill({entry("first", 2), entry("as fast", 2)});
  EXPECT_EQ(chosen(1), "first");
}

TEST_F(Choose, TheWalkListsEveryVerdictAndPrediction) {
  fill({entry("slow", 3), entry("named", 1, false), entry("fast", 2)});
  const Types::Problem problem{.size = 5};
  const auto verdicts = TestChooser(problem, {}).walk();
  ASSERT_EQ(verdicts.size(), 3u);
  EXPECT_DOUBLE_EQ(verdicts[0].prepared.plan->seconds, 15e-6);
  EXPECT_EQ(verdicts[0].prepared.plan->workspace_bytes, 0);
  EXPECT_EQ(verdicts[1].reason, "runs only when named");
  EXPECT_EQ(TestChooser::leader(verdicts)->name, "fast");
}

TEST_F(Choose, OfOneNameForSeveralDevicesTheTensorsDeviceDecides) {
  Implementation<Types> gpu = entry("gpu", 0), shared = entry("shared", 0);
  gpu.device = shared.device = DeviceKind::cuda;
  fill({gpu, shared, entry("shared", 0), entry("other", 0)});
  const auto verdicts = TestChooser({}, {}).walk();
  ASSERT_EQ(verdicts.size(), 3u);
  EXPECT_EQ(verdicts[0].name, "gpu");
  EXPECT_EQ(verdicts[0].reason, "runs on cuda, the tensors are on cpu");
  EXPECT_EQ(chosen(1), "shared");
  EXPECT_EQ(TestChooser({}, "gpu").walk().size(), 1u);
  EXPECT_EQ(TestChooser({}, "shared").walk().size(), 1u);
}

TEST_F(Choose, OneThatIsAddedBeforeAnotherComesBeforeIt) {
  fill({entry("first", 0), entry("second", 0)});
  const Implementation<Types> between[] = {entry("between", 0)};
  the_list->add_before("second", between);
  const auto verdicts = TestChooser({}, {}).walk();
  ASSERT_GE(verdicts.size(), 3u);
  EXPECT_EQ(verdicts[0].name, "first");
  EXPECT_EQ(verdicts[1].name, "between");
  EXPECT_EQ(verdicts[2].name, "second");
}

TEST_F(Choose, RefusalsAreNotCached) {
  fill({entry("only", 1)});
  for (int n = 0; n < 2; ++n) {
    EXPECT_THROW(chosen(-1), Error);
    EXPECT_THROW(chosen(1, "onyl"), Error);
  }
}

TEST_F(Choose, EachNewProblemIsPlannedOnceAndARepeatedOneIsFound) {
  fill({entry("only", 1)});
  const auto made = [before = TestChooser::Cache::instance().made()] {
    return TestChooser::Cache::instance().made() - before;
  };
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (int size = 1; size <= 100; ++size) chosen(size);
    EXPECT_EQ(made(), 100);
  }
  std::thread([] { chosen(100); }).join();
  EXPECT_EQ(made(), 100);
  chosen(100, "only");  // another question
  EXPECT_EQ(made(), 101);
  Types::list().add({});
  chosen(100);
  EXPECT_EQ(made(), 102);
}

// 8 threads repeat as many problems as a thread keeps: each looks under the lock once for each problem, then never
// again.
TEST_F(Choose, RepeatedProblemsTakeNoLock) {
  fill({entry("only", 1)});
  constexpr int kThreads = 8, kProblems = 100, kRounds = 50;
  static_assert(kProblems <= TestChooser::Cache::kKept);
  const std::int64_t before = TestChooser::Cache::instance().shared_lookups();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number) {
    threads.emplace_back([&wrong] {
      for (int n = 0; n < kRounds * kProblems; ++n) {
        const Types::Problem problem{.size = n % kProblems};
        const auto choice = TestChooser(problem, {}).choose("test");
        if (static_cast<const SizedPlan&>(*choice->plan).size != problem.size) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(TestChooser::Cache::instance().shared_lookups() - before, kThreads * kProblems);
}

// Both threads are in make() at once. Neither waits for the other, and the value of the first to end serves both.
TEST(PlanCache, ThreadsThatMakeTheSameValueShareOne) {
  struct Request {
    int number;
    std::size_t hash;
  };
  struct Number {
    int number;
    bool answers(const Request& request) const { return number == request.number; }
  };
  auto& cache = PlanCache<Number>::instance();
  constexpr Request kRequest{7, 7};
  std::latch both(2);
  const auto find = [&] {
    return cache.find(kRequest, [&] {
      both.arrive_and_wait();
      return std::make_shared<const Number>(Number{7});
    });
  };
  std::shared_ptr<const Number> here, there;
  std::thread other([&] { there = find(); });
  here = find();
  other.join();
  EXPECT_EQ(cache.made(), 2);
  EXPECT_EQ(here.get(), there.get());
  EXPECT_EQ(find().get(), here.get());
}

// Values that share a hash, and values whose hashes share a slot's list, leave it one by one in the order they came.
TEST_F(Choose, TheLastProblemsStay) {
  fill({entry("only", 1)});
  constexpr int kKept = TestChooser::Cache::kKept, kProblems = 5 * kKept;
  for (int size = 0; size < kProblems; ++size) chosen(size);
  const std::int64_t before = TestChooser::Cache::instance().shared_lookups();
  for (int size = kProblems - kKept; size < kProblems; ++size) chosen(size);
  EXPECT_EQ(TestChooser::Cache::instance().shared_lookups(), before);
  chosen(kProblems - kKept - 1);
  EXPECT_EQ(TestChooser::Cache::instance().shared_lookups(), before + 1);
}

TEST_F(Choose, ANewImplementationInvalidatesCachedChoices) {
  fill({entry("first", 2)});
  EXPECT_EQ(chosen(7), "first");
  const Implementation<Types> more[] = {entry("faster", 1)};
  Types::list().add(more);
  EXPECT_EQ(chosen(7), "faster");
}

TEST_F(Choose, EvictionKeepsPlansThatAreInUse) {
  fill({entry("only", 1)});
  const Types::Problem problem{.size = 1};
  const auto held = TestChooser(problem, {}).choose("test");
  for (int size = 2; size < 1000; ++size) chosen(size);
  EXPECT_EQ(static_cast<const SizedPlan&>(*held->plan).size, 1);
  EXPECT_LE(living_plans.load(), 1 + int{2 * TestChooser::Cache::kKept});
}

// Eight threads ask for more problems than there are slots, and the process is forked meanwhile.
TEST_F(Choose, ManyThreadsAndForkedChildrenFindTheirPlans) {
  fill({entry("only", 1)});
  constexpr int kProblems = 300, kRounds = 20000;
  std::atomic<int> wrong{0}, running{8};
  const auto ask = [&](unsigned seed, int rounds) {
    std::minstd_rand random(seed);
    for (int n = 0; n < rounds; ++n) {
      const Types::Problem problem{.size = static_cast<int>(random() % kProblems)};
      const auto choice = TestChooser(problem, {}).choose("test");
      if (static_cast<const SizedPlan&>(*choice->plan).size != problem.size) ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 8; ++seed) {
    threads.emplace_back([&, seed] {
      ask(seed, kRounds);
      --running;
    });
  }
// A child of a threaded process may find the sanitizers' own allocator locked for ever.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  for (int forks = 0; forks < 3 || running > 0; ++forks) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);  // a lock that nobody gives back would hold the child for ever
      ask(100, 2000);
      _exit(wrong == 0 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
#endif
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// A plan is asked for by what a thread destroys at its end, after its own slots are gone.
TEST_F(Choose, DestructorsOfAnEndingThreadMayChoose) {
  fill({entry("only", 1)});
  static std::atomic<int> answered;
  answered = 0;
  struct AtTheEnd {
    ~AtTheEnd() { answered += chosen(3) == "only" ? 1 : 0; }
  };
  std::thread([] {
    static thread_local AtTheEnd last;  // made before the thread's slots, so destroyed after them
    (void)last;
    chosen(3);
  }).join();
  EXPECT_EQ(answered, 1);
}

}  // namespace
}  // namespace fovea::core

// The sampling engine against sources whose times are known.
#include "program/bench/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "program/bench/sweep.h"
#include "program/worker/process.h"

namespace fovea::program {
namespace {

// Answers with the times of a pattern, over and over, and notes who was asked.
struct Pattern {
  std::string name;
  std::vector<double> times;
  std::vector<std::string>* calls;
  std::size_t at = 0;

  SampleSource source() {
    return {name, [this](int runs, int lead) {
              if (calls != nullptr) calls->push_back(name);
              at += static_cast<std::size_t>(lead);
              std::vector<double> taken;
              for (int i = 0; i < runs; ++i) taken.push_back(times[at++ % times.size()]);
              return taken;
            }};
  }
};

double sum_of(const std::vector<double>& samples) { return std::accumulate(samples.begin(), samples.end(), 0.0); }

TEST(Sampler, QuietSourcesEndByTheirNoiseAndNoisyOnesByTime) {
  Pattern quiet{"quiet", {0.02}, nullptr}, noisy{"noisy", {0.01, 0.03, 0.02, 0.05}, nullptr};
  EXPECT_EQ(sample_interleaved({quiet.source()}, {.repeat_for = 2}, 1)[0].samples.size(),
            static_cast<std::size_t>(kEnoughSamples));
  const double total = sum_of(sample_interleaved({noisy.source()}, {.repeat_for = 2}, 1)[0].samples);
  EXPECT_GE(total, 2.0);
  EXPECT_LT(total, 2.2);
}

// A chip's clock falls while one contender runs alone: all must be timed under the same load.
TEST(Sampler, QuietSourcesTakeTurnsUntilTheLastOneHasEnough) {
  std::vector<std::string> calls;
  Pattern quiet{"quiet", {0.02}, &calls}, noisy{"noisy", {0.02, 0.03, 0.02, 0.05}, &calls};
  const auto outcomes = sample_interleaved({quiet.source(), noisy.source()}, {.repeat_for = 2}, 1);
  EXPECT_EQ(outcomes[0].samples.size(), outcomes[1].samples.size());
  EXPECT_GE(sum_of(outcomes[1].samples), 2.0);
  EXPECT_NE(calls[calls.size() - 1], calls[calls.size() - 2]) << "the last round has one turn of each";
}

// One that takes much longer has spent its time first, and the others go on.
TEST(Sampler, ASlowSourceLeavesWhenItsTimeIsSpent) {
  Pattern slow{"slow", {1.0}, nullptr}, noisy{"noisy", {0.02, 0.03, 0.02, 0.05}, nullptr};
  const auto outcomes = sample_interleaved({slow.source(), noisy.source()}, {.repeat_for = 4}, 1);
  EXPECT_EQ(outcomes[0].samples.size(), 4u);
  EXPECT_GE(sum_of(outcomes[1].samples), 4.0);
}

TEST(Sampler, TurnsOfShortRunsBeginWithUntimedOnes) {
  std::vector<int> leads;
  const SampleSource source{"short", [&leads](int runs, int lead) {
                              leads.push_back(lead);
                              return std::vector<double>(static_cast<std::size_t>(runs), 1e-3);
                            }};
  sample_interleaved({source}, {.repeat_for = 1, .settle = 5e-3}, 1);
  EXPECT_EQ(leads.back(), 5);
  sample_interleaved({source}, {.repeat_for = 1}, 1);
  EXPECT_EQ(leads.back(), 1);
}

TEST(Sampler, SamplesOfManyRunsFillATurnByWhatTheyTakeTogether) {
  std::vector<int> turns;
  const SampleSource source{"graph", [&turns](int runs, int) {
                              turns.push_back(runs);
                              return std::vector<double>(static_cast<std::size_t>(runs), 20e-6);
                            }};
  sample_interleaved({source}, {.repeat_for = 0.01, .turn = 5e-3, .least_sample = 2e-3}, 1);
  EXPECT_EQ(turns.back(), 2);
  const auto outcomes = sample_interleaved({source}, {.repeat_for = 10, .turn = 5e-3, .least_sample = 2e-3}, 1);
  EXPECT_EQ(outcomes[0].samples.size(), 150u) << "kEnoughSeconds, not kMostSamples";
}

// A clock that changes from turn to turn, and not within one: 20 samples of a turn are no better than one.
TEST(Sampler, ManySamplesOfDifferentTurnsAreNoQuietSource) {
  int turn = 0;
  const SampleSource source{"clock", [&turn](int runs, int) {
                              const double seconds = ++turn % 2 == 0 ? 1.00e-3 : 1.04e-3;
                              return std::vector<double>(static_cast<std::size_t>(runs), seconds);
                            }};
  const auto outcomes = sample_interleaved({source}, {.repeat_for = 10}, 1);
  EXPECT_EQ(outcomes[0].samples.size(), static_cast<std::size_t>(kMostSamples));
  turn = 0;
  const auto short_turns = sample_interleaved({source}, {.repeat_for = 10, .turn = 5e-3}, 1);
  EXPECT_LT(short_turns[0].samples.size(), static_cast<std::size_t>(kMostSamples));
}

TEST(Sampler, TakesAtLeastThreeSamples) {
  Pattern slow{"slow", {30}, nullptr};
  const auto outcomes = sample_interleaved({slow.source()}, {.repeat_for = 10}, 1);
  EXPECT_EQ(outcomes[0].samples.size(), static_cast<std::size_t>(kLeastSamples));
}

// One turn each would compare who came first with who came second.
TEST(Sampler, AShortSamplingHasThreeTurnsOfEach) {
  std::vector<std::string> calls;
  Pattern a{"a", {0.005}, &calls}, b{"b", {0.005}, &calls};
  const auto outcomes = sample_interleaved({a.source(), b.source()}, {.repeat_for = 0.001}, 1);
  EXPECT_EQ(outcomes[0].samples.size(), 4u * kLeastTurns);  // kTurnSeconds hold four runs
  EXPECT_EQ(outcomes[1].samples.size(), 4u * kLeastTurns);
}

TEST(Sampler, ShortRunsEndAtTheMaximumOfSamples) {
  Pattern tiny{"tiny", {1e-6, 3e-6}, nullptr};
  const auto outcomes = sample_interleaved({tiny.source()}, {.repeat_for = 10}, 1);
  EXPECT_EQ(outcomes[0].samples.size(), static_cast<std::size_t>(kMostSamples));
}

TEST(Sampler, TurnsInterleaveInChangingOrder) {
  std::vector<std::string> calls;
  Pattern a{"a", {0.05}, &calls}, b{"b", {0.05}, &calls}, c{"c", {0.05}, &calls};
  sample_interleaved({a.source(), b.source(), c.source()}, {.repeat_for = 1}, 7);
  const std::size_t rounds = 20;  // one sample a turn, kEnoughSamples of them
  ASSERT_GE(calls.size(), 3 * rounds);
  const std::vector<std::string> turns(calls.end() - 3 * rounds, calls.end());
  std::vector<std::string> orders;
  for (std::size_t i = 0; i < turns.size(); i += 3) {
    std::vector<std::string> round(turns.begin() + static_cast<std::ptrdiff_t>(i),
                                   turns.begin() + static_cast<std::ptrdiff_t>(i) + 3);
    orders.push_back(round[0] + round[1] + round[2]);
    std::sort(round.begin(), round.end());
    EXPECT_EQ(round, (std::vector<std::string>{"a", "b", "c"}));
  }
  std::sort(orders.begin(), orders.end());
  EXPECT_GE(std::unique(orders.begin(), orders.end()) - orders.begin(), 4);
}

TEST(Sampler, AFailureEndsOnlyItsSource) {
  Pattern good{"good", {0.05}, nullptr};
  int calls = 0;
  const SampleSource bad{"bad", [&calls](int, int) -> std::vector<double> {
                           if (++calls < 8) return {0.05};
                           throw WorkerFailure{"crashed", "Segmentation fault"};
                         }};
  const auto outcomes = sample_interleaved({bad, good.source()}, {.repeat_for = 1}, 1);
  EXPECT_EQ(outcomes[0].status, "crashed");
  EXPECT_EQ(outcomes[0].reason, "Segmentation fault");
  EXPECT_TRUE(outcomes[0].samples.empty()) << "a time is reported for a row that failed";
  EXPECT_EQ(outcomes[1].status, "ok");
  EXPECT_GE(outcomes[1].samples.size(), static_cast<std::size_t>(kLeastSamples));
}

TEST(Sampler, TheNotchShrinksWithTheSquareRootOfTheSamples) {
  std::vector<double> few{1, 2, 3, 4}, many;
  for (int i = 0; i < 100; ++i) many.insert(many.end(), few.begin(), few.end());
  EXPECT_NEAR(relative_notch(few) / relative_notch(many), 10, 1.5);
}

TEST(Sampler, MoreThanATenthOfTheSamplesMakeARowHostBound) {
  std::vector<bool> runs(30, true);  // the warm-up's, which are not samples
  runs.insert(runs.end(), 20, false);
  EXPECT_FALSE(is_host_bound(runs, 20));
  runs[30] = runs[49] = true;
  EXPECT_FALSE(is_host_bound(runs, 20)) << "a tenth";
  runs[40] = true;
  EXPECT_TRUE(is_host_bound(runs, 20));
}

TEST(Budget, ShortensTheSamplingOfRemainingRows) {
  EXPECT_DOUBLE_EQ(share_of_budget(120, 100, 10), 0.6);
  EXPECT_DOUBLE_EQ(share_of_budget(120, 100, 0.5), 0.5) << "never longer than asked";
  EXPECT_GT(share_of_budget(-30, 10, 0.5), 0) << "a slow machine measures every row all the same";
  EXPECT_LT(share_of_budget(-30, 10, 0.5), 0.1);
  EXPECT_GT(share_of_budget(1, 0, 0.5), 0);
  EXPECT_DOUBLE_EQ(share_of_budget(-1, 10, 0.01), 0.01);
}

}  // namespace
}  // namespace fovea::program

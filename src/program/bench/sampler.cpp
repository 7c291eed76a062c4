// Rounds of turns: a disturbance of the machine during a round affects all contenders alike.
#include "program/bench/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "program/record/record.h"
#include "program/worker/process.h"

namespace fovea::program {
namespace {

constexpr int kWarmRuns = 3;
constexpr double kWarmSeconds = 0.05;
constexpr double kLongestWarmUp = 0.3;  // wall-clock seconds: taking one sample may need many runs
constexpr int kMostLead = 1000;         // untimed runs of a turn
constexpr double kLongRun = 1.0;        // a run this long needs no three warm-up runs

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class Turn {
 public:
  Turn(const SampleSource& source, SampleOutcome& outcome, const SamplingLimits& limits)
      : source_(source), outcome_(outcome), limits_(limits) {}

  // Failed, or all its time or samples are spent.
  bool is_out() const { return out_; }
  bool wants_more() const { return !out_ && !quiet(); }

  void warm_up() {
    double total = 0;
    int runs = 0;
    guarded([&] {
      const double seconds = std::min(kWarmSeconds, limits_.repeat_for);
      const auto start = Clock::now();
      const auto cold = [&] { return total < seconds && seconds_since(start) < kLongestWarmUp; };
      while ((runs < kWarmRuns || cold()) && !(runs > 0 && total / runs > kLongRun)) {
        for (const double s : source_.sample(runs == 0 ? 1 : runs_per_turn(), 0)) {
          total += s;
          ++runs;
          typical_ = std::max(s, limits_.least_sample);
        }
      }
    });
  }

  void take() {
    const int runs = std::min<int>(runs_per_turn(), kMostSamples - static_cast<int>(outcome_.samples.size()));
    guarded([&] {
      // After another contender's turn, caches hold its data. If runs are short, the first one would stand out.
      const auto taken = source_.sample(runs, runs > 1 ? lead() : 0);
      // Rounds to nanoseconds: further digits are noise and would only lengthen the records.
      for (const double s : taken) outcome_.samples.push_back(std::round(s * 1e9) / 1e9);
      if (!taken.empty()) turn_medians_.push_back(statistics_of(taken).median);
    });
    if (!out_) out_ = spent();
  }

 private:
  template <class Work>
  void guarded(Work work) {
    const auto start = Clock::now();
    try {
      work();
    } catch (const WorkerFailure& failure) {
      end_with(failure.status, failure.reason);
      return;
    }
    seconds_ += seconds_since(start);
    if (seconds_ > limits_.timeout && static_cast<int>(outcome_.samples.size()) < kLeastSamples)
      end_with("timeout",
               fmt::format("{} samples take longer than the limit of {:.3g} s", kLeastSamples, limits_.timeout));
  }

  void end_with(const std::string& status, const std::string& reason) {
    outcome_ = {{}, status, reason};
    out_ = true;
  }

  int runs_per_turn() const { return typical_ > 0 ? std::clamp(static_cast<int>(limits_.turn / typical_), 1, 50) : 1; }

  int lead() const { return std::clamp(static_cast<int>(limits_.settle / typical_), 1, kMostLead); }

  bool has_least() const {
    return std::ssize(outcome_.samples) >= kLeastSamples && std::ssize(turn_medians_) >= kLeastTurns;
  }

  double total() const {
    return std::accumulate(outcome_.samples.begin(), outcome_.samples.end(), 0.0,
                           [this](double sum, double s) { return sum + std::max(s, limits_.least_sample); });
  }

  bool spent() const {
    return has_least() && (std::ssize(outcome_.samples) >= kMostSamples || total() >= limits_.repeat_for ||
                           seconds_ >= 2 * limits_.repeat_for);
  }

  bool quiet() const {
    return has_least() && std::ssize(outcome_.samples) >= kEnoughSamples && total() >= kEnoughSeconds &&
           relative_notch(outcome_.samples) < kQuietNotch && relative_notch(turn_medians_) < kQuietTurns;
  }

  const SampleSource& source_;
  SampleOutcome& outcome_;
  const SamplingLimits& limits_;
  std::vector<double> turn_medians_;
  double typical_ = 0, seconds_ = 0;
  bool out_ = false;
};

}  // namespace

bool is_host_bound(const std::vector<bool>& runs, std::ptrdiff_t samples) {
  const auto marked = std::count(runs.end() - samples, runs.end(), true);
  return static_cast<double>(marked) > kMostHostBound * static_cast<double>(samples);
}

double relative_notch(const std::vector<double>& samples) {
  if (samples.empty()) return std::numeric_limits<double>::infinity();
  const TimeStatistics t = statistics_of(samples);
  return 1.57 * (t.q3 - t.q1) / std::sqrt(static_cast<double>(t.n)) / t.median;
}

std::vector<SampleOutcome> sample_interleaved(const std::vector<SampleSource>& sources, const SamplingLimits& limits,
                                              std::uint64_t seed,
                                              const std::function<void(const RoundReport&)>& after_turn) {
  std::vector<SampleOutcome> outcomes(sources.size());
  std::vector<Turn> turns;
  for (std::size_t i = 0; i < sources.size(); ++i) turns.emplace_back(sources[i], outcomes[i], limits);
  for (Turn& turn : turns) turn.warm_up();
  std::vector<std::size_t> order(sources.size());
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(seed);
  // Quiet sources go on while others need more samples. If they stopped, the others would run without pauses between
  // their turns, and a chip at its power limit would give them a lower clock rate.
  while (std::any_of(turns.begin(), turns.end(), [](const Turn& turn) { return turn.wants_more(); })) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      if (turns[i].is_out()) continue;
      turns[i].take();
      if (after_turn && !outcomes[i].samples.empty())
        after_turn({sources[i].name, outcomes[i].samples.size(), statistics_of(outcomes[i].samples).median});
    }
  }
  return outcomes;
}

}  // namespace fovea::program

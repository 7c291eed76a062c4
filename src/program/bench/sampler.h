// The sampling engine: warm-up, interleaved rounds in random order, and when to stop. It does not know processes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fovea::program {

// A contender's turn.
inline constexpr double kTurnSeconds = 0.02;      // long enough to fill a CPU's caches with its data
inline constexpr double kGpuTurnSeconds = 0.005;  // so that every contender meets all clock rates

struct SamplingLimits {
  double repeat_for = 10;  // seconds of samples per contender that suffice, beyond the least samples and turns
  double timeout = 60;     // maximum seconds until a contender has the minimum number of samples
  // Seconds of untimed runs at the start of a turn. A process that goes on after a pause needs some milliseconds until
  // its threads run on processors of their own.
  double settle = 0;
  double turn = kTurnSeconds;  // seconds of a contender's turn
  double least_sample = 0;     // seconds that a sample takes at least, if it is a mean over many runs
};

inline constexpr int kLeastSamples = 3;
inline constexpr int kLeastTurns = 3;  // in one round, whoever comes first may be slower for that alone
inline constexpr int kMostSamples = 500;
inline constexpr int kEnoughSamples = 20;      // at least so many before low noise may end the sampling
inline constexpr double kEnoughSeconds = 0.3;  // likewise
inline constexpr double kQuietNotch = 0.005;   // below this half-width of the median's 95 % notch, the noise is low,
inline constexpr double kQuietTurns = 0.01;    // if this is so of the turns' medians: samples of a turn are alike
inline constexpr double kNoisySpread = 0.05;   // (q3 - q1) / median above which a row is flagged noisy
inline constexpr double kMostHostBound = 0.1;  // share of host-bound samples above which a row is flagged host_bound

// A contender to sample. `sample` makes `lead` untimed runs, then `runs` timed ones. It may throw WorkerFailure, which
// ends only this contender.
struct SampleSource {
  std::string name;
  std::function<std::vector<double>(int runs, int lead)> sample;
};

struct SampleOutcome {
  std::vector<double> samples;        // seconds; empty if it failed
  std::string status = "ok", reason;  // of kRowStatuses
};

struct RoundReport {  // for the progress line
  const std::string& name;
  std::size_t samples;
  double median;
};

// Samples all sources in turns. `seed` fixes the order of turns.
std::vector<SampleOutcome> sample_interleaved(const std::vector<SampleSource>& sources, const SamplingLimits& limits,
                                              std::uint64_t seed,
                                              const std::function<void(const RoundReport&)>& after_turn = {});

// Whether too many of the last `samples` runs may include the time that the host took to enqueue them.
bool is_host_bound(const std::vector<bool>& runs, std::ptrdiff_t samples);

// Half-width of the notch around the median (McGill, Tukey and Larsen 1978), relative to the median.
double relative_notch(const std::vector<double>& samples);

}  // namespace fovea::program

// A prediction: the preprocess, and then the steps of the busiest thread block.
#include "cuda/attention/sm90/backward_estimate.h"

#include <algorithm>

#include "cuda/attention/sm90/estimate.h"

namespace fovea::cuda::sm90 {
namespace {

// Fitted, as the tiles' own times are (backward_times.h), to the dense cells of docs/kernels/sm90_backward_notebook.md.
constexpr double kLaunches = 6.0e-6;    // of both kernels, up to the first product, and the end of the grid
constexpr double kTail = 0.5;           // of the longest thread block: what the last ones work alone, and waits for turns
constexpr double kMemoryRate = 1.9e12;  // bytes per second of the preprocess

double visits_of_tile(const AttentionProblem& p, const KeyWindow& window, const BackwardInstance& one,
                      std::int64_t index) {
  const std::int64_t first = index * kKeys, last = std::min(first + kKeys, p.len_k) - 1;
  const std::int64_t begin = std::max<std::int64_t>(first - window.end + 1, 0);
  const std::int64_t end = std::min(last - window.begin + 1, p.len_q);
  return begin < end ? static_cast<double>(divide_up(end, one.queries) - begin / one.queries) : 0.0;
}

}  // namespace

QueryVisits query_visits_of(const AttentionProblem& p, const BackwardInstance& one) {
  constexpr std::int64_t kSamples = 1024;
  const KeyWindow window = key_window(p);
  const std::int64_t key_tiles = divide_up(p.len_k, kKeys), samples = std::min(key_tiles, kSamples);
  QueryVisits visits{.key_tiles = key_tiles * p.batch * p.heads_kv};
  for (std::int64_t n = 0; n < samples; ++n) {
    const std::int64_t index = samples == 1 ? 0 : n * (key_tiles - 1) / (samples - 1);
    const double tile = visits_of_tile(p, window, one, index) * static_cast<double>(p.heads_q / p.heads_kv);
    visits.all += tile;
    visits.longest = std::max(visits.longest, tile);
  }
  visits.all *= static_cast<double>(visits.key_tiles) / static_cast<double>(samples);
  return visits;
}

double seconds_of(const AttentionProblem& p, const BackwardInstance& one, int sms) {
  const QueryVisits visits = query_visits_of(p, one);
  const auto key_tiles = static_cast<double>(visits.key_tiles);
  const double ctas = std::min(key_tiles, static_cast<double>(sms));
  const double longest = visits.longest * one.times.step + one.times.tile;
  double busiest = static_cast<double>(divide_up(visits.key_tiles, static_cast<std::int64_t>(ctas))) * longest;
  if (!visits.equal() && key_tiles > ctas) {
    const double even = (visits.all * one.times.step + key_tiles * one.times.tile) / ctas;
    busiest = std::max(longest, even + kTail * longest);
  }
  const double rows = static_cast<double>(p.batch) * static_cast<double>(p.heads_q) * static_cast<double>(p.len_q);
  return kLaunches + rows * static_cast<double>(p.dim_v) * 4.0 / kMemoryRate + busiest;
}

}  // namespace fovea::cuda::sm90

// A prediction: the steps of the busiest thread block.
#include "cuda/attention/sm90/estimate.h"

#include <algorithm>

namespace fovea::cuda::sm90 {
namespace {

// Fitted, as the tiles' own times are (tiles.h), to the dense cells of the run of
// docs/kernels/sm90_forward_notebook.md.
constexpr double kLaunch = 3.0e-6;        // up to the first product, and the end of the grid
constexpr double kCounterReset = 1.5e-6;  // a memset ahead of the kernel
constexpr double kTail = 0.15;            // of the longest tile: what the last thread block works alone
constexpr double kMemoryRate = 4.0e12;    // bytes per second

double visits_of_tile(const AttentionProblem& p, const KeyWindow& window, const ForwardTile& tile, std::int64_t index) {
  const std::int64_t first = index * tile.rows(), last = std::min(first + tile.rows(), p.len_q) - 1;
  const std::int64_t begin = std::max<std::int64_t>(first + window.begin, 0);
  const std::int64_t end = std::min(last + window.end, p.len_k);
  return begin < end ? static_cast<double>(divide_up(end, tile.keys) - begin / tile.keys) : 0.0;
}

}  // namespace

Visits visits_of(const AttentionProblem& p, const ForwardTile& tile) {
  constexpr std::int64_t kSamples = 1024;
  const KeyWindow window = key_window(p);
  const std::int64_t q_tiles = divide_up(p.len_q, tile.rows()), samples = std::min(q_tiles, kSamples);
  Visits visits{.tiles = q_tiles * p.batch * p.heads_q};
  for (std::int64_t n = 0; n < samples; ++n) {
    const std::int64_t index = samples == 1 ? 0 : n * (q_tiles - 1) / (samples - 1);
    const double one = visits_of_tile(p, window, tile, index);
    visits.all += one;
    visits.longest = std::max(visits.longest, one);
  }
  visits.all *= static_cast<double>(visits.tiles) / static_cast<double>(samples);
  return visits;
}

double seconds_of(const AttentionProblem& p, const ForwardInstance& instance, int sms) {
  const Visits visits = visits_of(p, instance.tile);
  const ForwardTimes& times = instance.times;
  const auto tiles = static_cast<double>(visits.tiles);
  const double ctas = std::min(tiles, static_cast<double>(sms));
  const double longest = visits.longest * times.step + times.tile;
  double busiest = static_cast<double>(divide_up(visits.tiles, static_cast<std::int64_t>(ctas))) * longest;
  if (!visits.equal() && tiles > ctas) {
    const double even = (visits.all * times.step + tiles * times.tile) / ctas;
    busiest = kCounterReset + std::max(longest, even + kTail * longest);
  }
  return kLaunch + std::max(busiest, bytes(p) / kMemoryRate);
}

}  // namespace fovea::cuda::sm90

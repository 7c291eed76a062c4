// Forward's prediction: the steps of the busiest thread block, or the time to read K and V, and the combine of splits.
#include "cuda/attention/sm90/estimate.h"

#include <algorithm>

namespace fovea::cuda::sm90 {
namespace {

// Fitted to dense cells, as the tiles' own times are (tiles.h), and to calls with splits; the runs are in
// docs/kernels/sm90_forward_notebook.md, steps 2 and 5.
constexpr double kLaunch = 3.0e-6;         // up to the first product, and the end of the grid
constexpr double kCounterReset = 1.5e-6;   // a memset ahead of the kernel
constexpr double kTail = 0.15;             // share of the longest tile's time in which the last thread block runs alone
constexpr double kMemoryRate = 4.0e12;     // bytes per second
constexpr double kCtaMemoryRate = 3.2e10;  // the most of it that one thread block reads
constexpr double kCombine = 8.8e-6;        // launch of the combine, and its first reads, of cold memory
constexpr double kCombineColumn = 4.1e-9;  // per column and split: a warp combines a row split by split

std::int64_t visits_of_tile(const AttentionProblem& p, const KeyWindow& window, std::int64_t keys, std::int64_t queries,
                            std::int64_t index) {
  const std::int64_t first = index * queries, last = std::min(first + queries, p.len_q) - 1;
  const std::int64_t begin = std::max<std::int64_t>(first + window.begin, 0);
  const std::int64_t end = std::min(last + window.end, p.len_k);
  return begin < end ? divide_up(end, keys) - begin / keys : 0;
}

}  // namespace

Visits visits_of(const AttentionProblem& p, const ForwardTile& tile, std::int64_t packed_heads) {
  constexpr std::int64_t kSamples = 1024;
  const KeyWindow window = key_window(p);
  const std::int64_t queries = tile.rows() / packed_heads;
  const std::int64_t q_tiles = divide_up(p.len_q, queries), samples = std::min(q_tiles, kSamples);
  Visits visits{.tiles = q_tiles * p.batch * (p.heads_q / packed_heads)};
  for (std::int64_t n = 0; n < samples; ++n) {
    const std::int64_t index = samples == 1 ? 0 : n * (q_tiles - 1) / (samples - 1);
    const std::int64_t one = visits_of_tile(p, window, tile.keys, queries, index);
    visits.all += static_cast<double>(one);
    visits.longest = std::max(visits.longest, one);
  }
  visits.all *= static_cast<double>(visits.tiles) / static_cast<double>(samples);
  return visits;
}

double seconds_of(const AttentionProblem& p, const ForwardInstance& instance, const Division& division,
                  const Visits& visits, int sms) {
  const ForwardTimes& times = instance.times;
  const std::int64_t tiles = visits.tiles * division.splits, ctas = std::min<std::int64_t>(tiles, sms);
  const double tile = times.tile + (visits.equal() ? 0 : times.masked);
  const double longest = static_cast<double>(divide_up(visits.longest, division.splits)) * times.step + tile;
  double busiest = static_cast<double>(divide_up(tiles, ctas)) * longest;
  if (!visits.equal() && tiles > ctas) {
    const double even = (visits.all * times.step + static_cast<double>(tiles) * tile) / static_cast<double>(ctas);
    busiest = kCounterReset + std::max(longest, even + kTail * longest);
  }
  const double memory_rate = std::min(kMemoryRate, kCtaMemoryRate * static_cast<double>(ctas));
  const double seconds = kLaunch + std::max(busiest, bytes(p) / memory_rate);
  if (division.splits == 1) return seconds;
  // Every split writes fp32 partials, which the combine reads.
  const double partials =
      static_cast<double>(division.splits * p.batch * p.heads_q * p.len_q) * static_cast<double>(p.dim_v) * 4;
  const double row = kCombineColumn * static_cast<double>(division.splits * p.dim_v);
  return seconds + kCombine + row + 2 * partials / kMemoryRate;
}

}  // namespace fovea::cuda::sm90

// Backward's prediction: the preprocess, the steps of the busiest thread block, waits for turns to add to dQ, and the
// partials and the combine of splits.
#include "cuda/attention/sm90/backward_estimate.h"

#include <algorithm>

#include "cuda/attention/problem_shape.h"
#include "cuda/attention/sm90/arch_spec.h"
#include "cuda/attention/sm90/visits.h"

namespace fovea::cuda::sm90 {
namespace {

constexpr const BackwardCosts& kCosts = kH200.backward;

// Seconds of a thread block with the schedule `ring`. It walks the query tiles of each head. All key tiles add to a
// query tile one after another (`chain`), beside the walk. So each head takes the longer of both. With a single query
// tile per head, only the first head waits for its chain.
double ring_seconds(const BackwardInstance& one, const KeyTileOrder& order) {
  const double chain = (order.key_tiles - 1) * kCosts.turn;
  const double walk = order.query_tiles * one.times.step;
  return one.times.tile + (order.query_tiles == 1 ? chain + order.heads * walk : order.heads * std::max(walk, chain));
}

// With the schedule `ascending`, key tiles wait at their first query tile for the turns of those before them. This is
// how much later a sequence ends than its longest key tile would alone. `together`: key tiles of a sequence that are on
// the chip at once.
double wait_of_sequence(const AttentionProblem& p, const BackwardInstance& one, int heads, double together,
                        double step) {
  constexpr std::int64_t kSamples = 1024;
  const KeyWindow window = key_window(p), queries = query_window(window);
  const std::int64_t key_tiles = divide_up(p.len_k, kKeys), samples = std::min(key_tiles, kSamples);
  double longest = 0, latest = 0;
  for (std::int64_t n = 0; n < samples; ++n) {
    const std::int64_t index = samples == 1 ? 0 : n * (key_tiles - 1) / (samples - 1), first = index * kKeys;
    const std::int64_t begin = std::max<std::int64_t>(first + queries.begin, 0);
    const std::int64_t end = std::min(std::min(first + kKeys, p.len_k) - 1 + queries.end, p.len_q);
    if (begin >= end) continue;
    const std::int64_t last_tile = (end - 1) / one.queries;
    const std::int64_t first_to_add = std::max<std::int64_t>(last_tile * one.queries + window.begin, 0) / kKeys;
    const double steps = static_cast<double>(last_tile + 1 - begin / one.queries) * heads * step;
    const double turns = std::clamp(static_cast<double>(index - first_to_add), 0.0, together - 1);
    longest = std::max(longest, steps);
    latest = std::max(latest, turns * kCosts.turn + steps);
  }
  return latest - longest;
}

// Seconds of the kernel after the preprocess, without what splits cost.
double main_seconds(const AttentionProblem& p, const BackwardInstance& one, const KeyTileOrder& order, int sms) {
  const TileVisits visits = visits_of({.stationary = p.len_k,
                                       .stationary_tile = kKeys,
                                       .streamed = p.len_q,
                                       .streamed_tile = one.queries,
                                       .window = query_window(key_window(p))});
  const std::int64_t tiles = std::int64_t{order.sequences} * order.key_tiles, ctas = std::min<std::int64_t>(tiles, sms);
  const auto waves = static_cast<double>(divide_up(tiles, ctas));
  if (order.schedule == Schedule::ring) return waves * ring_seconds(one, order);
  const double step = one.times.step * (visits.equal() ? kCosts.equal_tiles : 1);
  const double longest = visits.longest * order.heads * step + one.times.tile;
  const double together =
      std::clamp(static_cast<double>(ctas / order.section), 1.0, static_cast<double>(order.key_tiles));
  const double wait = wait_of_sequence(p, one, order.heads, together, step);
  if (visits.equal() || tiles <= ctas) return waves * longest + wait;
  const double all =
      visits.all * static_cast<double>(p.batch * p.heads_q) * step + static_cast<double>(tiles) * one.times.tile;
  return std::max(longest, all / static_cast<double>(ctas) + kCosts.tail * longest) + wait;
}

// What splits cost beside their steps.
double split_seconds(const AttentionProblem& p, const BackwardInstance& one, const KeyTileOrder& order) {
  if (order.splits == 1) return 0;
  const std::int64_t columns = (p.wants_dk ? p.dim_qk : 0) + (p.wants_dv ? p.dim_v : 0);
  const double rows = static_cast<double>(order.splits) * static_cast<double>(p.batch * p.heads_kv * p.len_k);
  constexpr double kPartialBytes = 8;  // written once and read once
  return one.dim * kCosts.split_column + rows * static_cast<double>(columns) * kPartialBytes / kCosts.partial_rate;
}

}  // namespace

double seconds_of(const AttentionProblem& p, const BackwardInstance& one, const KeyTileOrder& order, int sms) {
  const double rows = static_cast<double>(p.batch) * static_cast<double>(p.heads_q) * static_cast<double>(p.len_q);
  constexpr double kRowBytes = 4;  // of out and dout, per column
  return kCosts.launches + rows * static_cast<double>(p.dim_v) * kRowBytes / kCosts.memory_rate +
         main_seconds(p, one, order, sms) + split_seconds(p, one, order);
}

}  // namespace fovea::cuda::sm90

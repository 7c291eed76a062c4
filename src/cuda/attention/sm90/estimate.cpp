// Forward's prediction: the steps of the busiest thread block, or the time to read K and V, and the combine of splits.
#include "cuda/attention/sm90/estimate.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "cuda/attention/problem_shape.h"
#include "cuda/attention/sm90/arch_spec.h"
#include "cuda/attention/sm90/visits.h"

namespace fovea::cuda::sm90 {
namespace {

constexpr const ForwardCosts& kCosts = kH200.forward;
constexpr std::int64_t kMostSimulated = 512;  // splits of a schedule that is simulated

StreamedRows rows_of(const AttentionProblem& p, const ForwardTile& tile, std::int64_t packed_heads) {
  return {.stationary = p.len_q,
          .stationary_tile = tile.rows() / packed_heads,
          .streamed = p.len_k,
          .streamed_tile = tile.keys,
          .window = key_window(p)};
}

// Simulates a schedule: the chip has `slots` thread blocks or clusters, and each takes the next work once it is free.
class Simulation {
 public:
  explicit Simulation(std::int64_t slots) : free_at_(static_cast<std::size_t>(slots)) {}
  void take(double seconds) {
    std::ranges::pop_heap(free_at_, std::greater<>());
    free_at_.back() += seconds;
    end_ = std::max(end_, free_at_.back());
    std::ranges::push_heap(free_at_, std::greater<>());
  }
  double end() const { return end_; }

 private:
  std::vector<double> free_at_;  // a heap; the least is first
  double end_ = 0;
};

// Seconds of a split, or of a cluster: for each K/V tile, and beside them.
struct WorkTimes {
  double step, rest;
};

// Seconds until the last split ends, if query tiles are taken from the last rows to the first.
double simulated_seconds(const AttentionProblem& p, const ForwardTile& tile, const Division& division,
                         const WorkTimes& times, std::int64_t longest, std::int64_t slots) {
  const StreamedRows rows = rows_of(p, tile, division.packed_heads);
  const std::int64_t q_tiles = divide_up(p.len_q, rows.stationary_tile);
  const std::int64_t sequences = p.batch * (p.heads_q / division.packed_heads);
  const std::int64_t of_split = divide_up(longest, division.splits);
  Simulation schedule(slots);
  for (std::int64_t index = q_tiles - 1; index >= 0; --index) {
    const std::int64_t visits = visits_of_tile(rows, index);
    for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
      if (division.in_cluster) {
        schedule.take(static_cast<double>(divide_up(visits, division.splits)) * times.step + times.rest);
        continue;
      }
      for (std::int64_t split = 0; split < division.splits; ++split) {
        const std::int64_t of_this = std::min(of_split, visits - split * of_split);
        schedule.take(of_this > 0 ? static_cast<double>(of_this) * times.step + times.rest : kCosts.no_keys);
      }
    }
  }
  return schedule.end();
}

// Seconds of the busiest of `slots` thread blocks or clusters. An answer of `limit` or more is only a lower bound,
// since a simulation takes time.
double busiest(const AttentionProblem& p, const ForwardInstance& instance, const Division& division,
               const Visits& visits, std::int64_t slots, double limit) {
  const ForwardTimes& times = instance.times;
  double rest = times.tile + (visits.equal() ? 0 : times.uneven);
  if (division.in_cluster)
    rest += kCosts.cluster_barriers +
            static_cast<double>(instance.tile.rows() * instance.tile.dim_v * 4) / kCosts.cluster_rate;
  const double longest = static_cast<double>(divide_up(visits.longest, division.splits)) * times.step + rest;
  const std::int64_t splits = visits.tiles * division.splits, works = division.in_cluster ? visits.tiles : splits;
  if (visits.equal() || works <= slots) return static_cast<double>(divide_up(works, slots)) * longest;
  const double reset = division.in_cluster ? 0 : kCosts.counter_reset;
  const double steps = division.in_cluster ? visits.all / static_cast<double>(division.splits) : visits.all;
  // At least one split of a tile has keys.
  const double even = (steps * times.step + static_cast<double>(visits.tiles) * rest) / static_cast<double>(slots);
  if (const double least = reset + std::max(longest, even); least >= limit) return least;
  if (splits <= kMostSimulated)
    return reset + simulated_seconds(p, instance.tile, division, {times.step, rest}, visits.longest, slots);
  const double later_splits = static_cast<double>(works - visits.tiles) * rest / static_cast<double>(slots);
  return reset + std::max(longest, even + later_splits + kCosts.tail * longest);
}

double memory_rate(std::int64_t ctas, bool in_cluster) {
  const auto n = static_cast<double>(ctas);
  const double rate = std::min(kCosts.memory_rate * n / (n + kCosts.half_rate_ctas), kCosts.cta_memory_rate * n);
  return in_cluster ? rate * kCosts.cluster_memory : rate;
}

}  // namespace

Visits visits_of(const AttentionProblem& p, const ForwardTile& tile, std::int64_t packed_heads) {
  const TileVisits one = visits_of(rows_of(p, tile, packed_heads));
  const std::int64_t sequences = p.batch * (p.heads_q / packed_heads);
  return {.tiles = one.tiles * sequences,
          .all = one.all * static_cast<double>(sequences),
          .longest = static_cast<std::int64_t>(one.longest)};
}

double seconds_of(const AttentionProblem& p, const ForwardInstance& instance, const Division& division,
                  const Visits& visits, int sms, double limit) {
  const std::int64_t ctas = std::min<std::int64_t>(visits.tiles * division.splits, sms);
  const double work =
      busiest(p, instance, division, visits, division.in_cluster ? division.resident : ctas, limit - kCosts.launch);
  const double seconds = kCosts.launch + std::max(work, bytes(p) / memory_rate(ctas, division.in_cluster));
  if (division.splits == 1 || division.in_cluster) return seconds;
  // Every split writes fp32 partials, which the combine reads.
  const double partials =
      static_cast<double>(division.splits * p.batch * p.heads_q * p.len_q) * static_cast<double>(p.dim_v) * 4;
  const double row = kCosts.combine_column * static_cast<double>(division.splits * p.dim_v);
  return seconds + kCosts.combine + row + 2 * partials / kCosts.memory_rate;
}

double cold_seconds(const Division& division, double seconds) {
  if (division.in_cluster) return kCosts.cold + seconds * kCosts.cold_cluster;
  return division.splits > 1 ? seconds : kCosts.cold + seconds;
}

}  // namespace fovea::cuda::sm90

// The estimates: the cycles of one thread block for a streamed tile and for a split, then of the chip.
#include "cuda/attention/any/estimate.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "cuda/attention/any/arch_spec.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"

namespace fovea::cuda::any {
namespace {

// One kernel on one device.
struct CostInput {
  const ArchSpec& arch;
  const TileShape& tile;
  const Workload& load;
  const Splitting& splitting;
  ElementKind kind;
  double sms;
  bool has_wgmma;  // in the code that the device runs of this tile

  const TileCosts& costs() const {
    if (!has_wgmma) return arch.mma_sync;
    switch (load.kernel) {
      case Kernel::forward:
        return arch.forward_wgmma;
      case Kernel::backward_dkdv:
        return arch.dkdv_wgmma;
      case Kernel::backward_dq:
        return arch.dq_wgmma;
    }
    return arch.mma_sync;
  }

  double rate() const {
    const auto& [mma, fma] = std::tie(arch.mma, arch.fma);
    if (kind == ElementKind::fp32)
      return tile.split_warps > 1  ? fma.shared_rows
             : tile.warps < 4      ? fma.few_warps
             : tile.lane_rows == 2 ? fma.wide_lanes
                                   : fma.others;
    if (has_wgmma) return costs().rate;
    return tile.split_warps > 1 ? mma.shared_rows : tile.row_tiles > 1 ? mma.two_tiles : mma.one_tile;
  }

  // Of a thread block for one streamed tile: its products at the rate of an SM that `resident` of them share, but no
  // less than their chain.
  double block_cycles(double shortest, double resident) const {
    const double elements = static_cast<double>(tile.rows() * tile.streamed_rows()) * (tile.dim + costs().softmax);
    return load.products * std::max(shortest, elements * resident / rate());
  }

  double result_bytes() const { return 4 * load.result_floats * tile.rows(); }  // fp32, of one split of a tile
};

double cycles_of_splits(const CostInput& c) {
  const Workload& load = c.load;
  const SplitCosts& costs = c.arch.split;
  const bool even = is_even(load);
  const int splits = c.splitting.split.splits;
  const double capacity = c.splitting.capacity, resident = c.splitting.most, tiles = static_cast<double>(load.tiles);
  const double length = static_cast<double>(c.splitting.split.tiles_per_split), all = tiles * splits;
  const double with_work = even ? all : std::max(tiles, load.work / length + (splits > 1 ? 0.5 * tiles : 0.0));
  // Splits without work count here: they occupy SMs briefly, so those with work are no longer spread evenly.
  const double alone = all <= c.sms && resident > 1 ? c.costs().alone : 1.0;
  const double block =
      c.block_cycles(c.tile.split_warps > 1 ? costs.shared_rows : c.costs().shortest, alone * resident);
  const double once = c.costs().begin + (splits > 1 ? c.result_bytes() * resident / costs.store_rate : 0.0);
  const double longest = length * block + once;
  double cycles = std::ceil(std::max(1.0, with_work / capacity)) * longest;
  if (with_work > capacity && !even) {
    // Whole and halved rows come longest first and fit well; shorter splits leave about half of one at the end.
    const double tail = splits <= 2 ? costs.tail_of_rows : costs.tail_of_splits;
    cycles = std::min(cycles, std::max(longest, (load.work * block + with_work * once) / capacity + tail * longest));
  }
  if (splits > 1)
    cycles += load.results * (costs.launch + costs.per_split * splits) +
              with_work * c.result_bytes() / (c.sms * costs.store_rate);
  return cycles;
}

// Under a mask the longest splits share their SM with short ones, which leave early.
double cycles_of_clusters(const CostInput& c) {
  const Workload& load = c.load;
  const TileCosts& costs = c.costs();
  const int cluster = c.splitting.split.splits;
  const double resident = c.splitting.resident, most = c.splitting.most, capacity = c.splitting.capacity;
  const double all = static_cast<double>(load.tiles * cluster);
  const double alone = resident > 1 ? costs.cluster_alone * 2 : 1.0;
  const double evenness = load.work / static_cast<double>(load.tiles * load.longest);
  const double together = std::min(most, all / c.sms) * (evenness + (1 - evenness) * c.arch.split.cluster_short);
  const bool faster = c.tile.row_tiles == 1 && c.kind != ElementKind::fp32 && load.kernel == Kernel::forward;
  const double speed = faster ? costs.cluster_speed : 1.0;
  const double block = c.block_cycles(costs.cluster_shortest, std::max(alone, together) / speed);
  const double once = costs.begin + load.results * (costs.cluster_barriers + c.arch.split.cluster_split * cluster) +
                      c.result_bytes() * most / costs.cluster_rate;
  const std::int64_t length = divide_up(load.longest, cluster);
  const double longest = static_cast<double>(length) * block + once;
  if (all <= capacity) return longest;
  const bool equally_long = is_even(load) || length == 1;
  if (equally_long) return std::ceil(all / capacity) * longest;
  const double crowded = c.block_cycles(costs.cluster_shortest, std::max(alone, most) / speed);
  return std::max(longest, (costs.wave_products * load.work * crowded + costs.wave_once * all * once) / capacity +
                               costs.wave_tail * longest);
}

// What a kernel with one of its choices adds to a pair.
struct Share {
  double split = 0;     // cycles of the longest
  double all = 0;       // of all splits, over the thread blocks that the chip holds
  double waves = 0;     // of splits
  double combined = 0;  // bytes
  bool is_split = false, even = false;
};

Share share_of(const TileChoice& one, const PairCosts& costs) {
  const auto& [kernel, load, splitting] = one;
  const TileShape& tile = kernel->tile;
  const int splits = splitting.split.splits;
  const bool in_cluster = splitting.split.in_cluster, in_memory = splits > 1 && !in_cluster, even = is_even(load);
  const auto tiles = static_cast<double>(load.tiles);
  const auto length = static_cast<double>(divide_up(std::max<std::int64_t>(load.longest, 1), splits));
  const double with_work = in_memory && !even ? load.work / length + 0.5 * tiles : tiles * splits;
  const double together = splitting.resident > 1 ? std::max(splitting.most, costs.alone) : 1.0;
  const double product = static_cast<double>(tile.rows() * tile.streamed_rows() * tile.dim) * together /
                         (tile.lane_rows == 2 ? costs.wide_rate : costs.rate);
  const double block = load.products * std::max(costs.shortest, product);
  const double bytes = 4 * load.result_floats * tile.rows();
  double once = costs.begin;
  if (in_memory) once += bytes * splitting.most / costs.store_rate;
  if (in_cluster) once += load.results * costs.cluster_combine + bytes * splitting.most / costs.cluster_rate;
  return {.split = length * block + once,
          .all = (load.work * block + with_work * once) / splitting.capacity,
          .waves = with_work / splitting.capacity,
          .combined = in_memory ? with_work * bytes : 0,
          .is_split = splits > 1,
          .even = even};
}

double cycles_of(const Share& dkdv, const Share& dq, const PairCosts& costs, double sms) {
  double cycles = std::max(dkdv.split, dq.split);
  if (dkdv.waves + dq.waves > 1) {
    const double tail = costs.tail_of_dq * dq.split + costs.tail_of_dkdv * dkdv.split;
    cycles = std::max({dkdv.split, dq.split, dkdv.all + dq.all + tail});
    if (dkdv.is_split)
      cycles = std::max(cycles, std::ceil(dkdv.waves - (dkdv.even ? 0 : costs.masked_wave)) * dkdv.split);
  }
  const double combined = dkdv.combined + dq.combined;
  return costs.preprocess + cycles + (combined > 0 ? costs.combine + combined / (sms * costs.combine_rate) : 0);
}

}  // namespace

double cycles_of(const TileChoice& one, ElementKind kind, int device) {
  const CostInput c{.arch = arch_spec(device),
                    .tile = one.kernel->tile,
                    .load = one.load,
                    .splitting = one.splitting,
                    .kind = kind,
                    .sms = static_cast<double>(device_info(device).sm_count),
                    .has_wgmma = one.kernel->tile.warpgroup && threads_allowed(wgmma_probe(), device) == kWarpgroup};
  return one.splitting.split.in_cluster ? cycles_of_clusters(c) : cycles_of_splits(c);
}

Pair fastest_pair(const std::vector<TileChoice>& dkdv, const std::vector<TileChoice>& dq, int device) {
  const PairCosts& costs = arch_spec(device).pair;
  const double sms = device_info(device).sm_count;
  std::vector<Share> of_dq;
  for (const TileChoice& one : dq) of_dq.push_back(share_of(one, costs));
  std::size_t first = 0, second = 0;
  double least = 0;
  for (std::size_t i = 0; i < dkdv.size(); ++i) {
    const Share of_dkdv = share_of(dkdv[i], costs);
    for (std::size_t j = 0; j < dq.size(); ++j) {
      const bool alike = dkdv[i].kernel->tile.rows() == dq[j].kernel->tile.rows();
      const double cycles = cycles_of(of_dkdv, of_dq[j], costs, sms) * (alike ? 1 : costs.unlike);
      if ((i == 0 && j == 0) || cycles < least) first = i, second = j, least = cycles;
    }
  }
  return {.dkdv = dkdv[first], .dq = dq[second], .cycles = least};
}

}  // namespace fovea::cuda::any

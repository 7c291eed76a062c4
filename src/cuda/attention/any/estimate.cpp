// Cycles of a thread block per streamed tile and per split, then cycles of the chip.
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
  const Workload& workload;
  const Splitting& splitting;
  ElementKind kind;
  double sms;
  bool has_wgmma;  // in the code that the device runs of this tile

  const TileCosts& costs() const {
    if (!has_wgmma) return arch.mma_sync;
    switch (workload.kernel) {
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
      return tile.split_warps > 1  ? fma.split_warps
             : tile.warps < 4      ? fma.few_warps
             : tile.lane_rows == 2 ? fma.wide_lanes
                                   : fma.others;
    if (has_wgmma) return costs().rate;
    return tile.split_warps > 1 ? mma.split_warps : tile.row_tiles > 1 ? mma.two_tiles : mma.one_tile;
  }

  // Cycles of a thread block for one streamed tile, where `ctas` of them share the rate of an SM. A product takes at
  // least `chain` cycles.
  double tile_cycles(double chain, double ctas) const {
    const double elements = static_cast<double>(tile.rows() * tile.streamed_rows()) * (tile.dim + costs().softmax);
    return workload.products * std::max(chain, elements * ctas / rate());
  }

  double result_bytes() const { return 4 * workload.result_floats * tile.rows(); }  // fp32, of one split of a tile
};

double cycles_of_splits(const CostInput& c) {
  const Workload& workload = c.workload;
  const SplitCosts& costs = c.arch.split;
  const bool even = is_even(workload);
  const int splits = c.splitting.split.splits;
  const double capacity = c.splitting.capacity, resident = c.splitting.ctas_per_sm;
  const double tiles = static_cast<double>(workload.tiles);
  const double length = static_cast<double>(c.splitting.split.tiles_per_split), all = tiles * splits;
  // Under a mask, rounding up adds half a split to every tile on average.
  const double with_work = even ? all : std::max(tiles, workload.work / length + (splits > 1 ? 0.5 * tiles : 0.0));
  // Splits without work count here: they occupy SMs briefly, so the others are not spread evenly.
  const double alone = all <= c.sms && resident > 1 ? c.costs().alone : 1.0;
  const double per_tile = c.tile_cycles(c.tile.split_warps > 1 ? costs.chain : c.costs().chain, alone * resident);
  const double once = c.costs().prologue + (splits > 1 ? c.result_bytes() * resident / costs.store_rate : 0.0);
  const double longest = length * per_tile + once;
  double cycles = std::ceil(std::max(1.0, with_work / capacity)) * longest;
  if (with_work > capacity && !even) {
    // Tiles that are not split, or only halved, run longest first and fill the chip well. With more splits the chip is
    // half idle for about one split at the end.
    const double tail = splits <= 2 ? costs.tail_few_splits : costs.tail_many_splits;
    cycles =
        std::min(cycles, std::max(longest, (workload.work * per_tile + with_work * once) / capacity + tail * longest));
  }
  if (splits > 1)
    cycles += workload.results * (costs.launch + costs.per_split * splits) +
              with_work * c.result_bytes() / (c.sms * costs.store_rate);
  return cycles;
}

// Under a mask the longest splits share their SM with short ones, which end early.
double cycles_of_clusters(const CostInput& c) {
  const Workload& workload = c.workload;
  const TileCosts& costs = c.costs();
  const int cluster = c.splitting.split.splits;
  const double resident = c.splitting.ctas_per_sm, capacity = c.splitting.capacity;
  const double all = static_cast<double>(workload.tiles * cluster);
  const double alone = c.splitting.max_ctas_per_sm > 1 ? costs.cluster_alone * 2 : 1.0;
  const double evenness = workload.work / static_cast<double>(workload.tiles * workload.longest);
  const double together = std::min(resident, all / c.sms) * (evenness + (1 - evenness) * c.arch.split.cluster_short);
  const bool faster = c.tile.row_tiles == 1 && c.kind != ElementKind::fp32 && workload.kernel == Kernel::forward;
  const double speed = faster ? costs.cluster_speed : 1.0;
  const double per_tile = c.tile_cycles(costs.cluster_chain, std::max(alone, together) / speed);
  const double once = costs.prologue +
                      workload.results * (costs.cluster_barriers + c.arch.split.cluster_split * cluster) +
                      c.result_bytes() * resident / costs.cluster_rate;
  const std::int64_t length = divide_up(workload.longest, cluster);
  const double longest = static_cast<double>(length) * per_tile + once;
  if (all <= capacity) return longest;
  const bool equally_long = is_even(workload) || length == 1;
  if (equally_long) return std::ceil(all / capacity) * longest;
  const double crowded = c.tile_cycles(costs.cluster_chain, std::max(alone, resident) / speed);
  return std::max(longest, (costs.wave_products * workload.work * crowded + costs.wave_once * all * once) / capacity +
                               costs.wave_tail * longest);
}

// What one kernel of a pair costs with one of its choices.
struct KernelCost {
  double longest = 0;         // cycles of the longest split
  double all = 0;             // cycles of all splits, divided by the thread blocks that fit the chip
  double waves = 0;           // splits, divided by the thread blocks that fit the chip
  double combined_bytes = 0;  // that combine.cu reads
  bool is_split = false, even = false;
};

KernelCost cost_of(const TileChoice& one, const PairCosts& costs) {
  const auto& [kernel, workload, splitting] = one;
  const TileShape& tile = kernel->tile;
  const int splits = splitting.split.splits;
  const bool in_cluster = splitting.split.in_cluster, in_memory = splits > 1 && !in_cluster, even = is_even(workload);
  const auto tiles = static_cast<double>(workload.tiles);
  const auto length = static_cast<double>(divide_up(std::max<std::int64_t>(workload.longest, 1), splits));
  const double with_work = in_memory && !even ? workload.work / length + 0.5 * tiles : tiles * splits;
  const double together = splitting.max_ctas_per_sm > 1 ? std::max(splitting.ctas_per_sm, costs.alone) : 1.0;
  const double product = static_cast<double>(tile.rows() * tile.streamed_rows() * tile.dim) * together /
                         (tile.lane_rows == 2 ? costs.wide_rate : costs.rate);
  const double per_tile = workload.products * std::max(costs.chain, product);
  const double bytes = 4 * workload.result_floats * tile.rows();
  double once = costs.prologue;
  if (in_memory) once += bytes * splitting.ctas_per_sm / costs.store_rate;
  if (in_cluster) once += workload.results * costs.cluster_combine + bytes * splitting.ctas_per_sm / costs.cluster_rate;
  return {.longest = length * per_tile + once,
          .all = (workload.work * per_tile + with_work * once) / splitting.capacity,
          .waves = with_work / splitting.capacity,
          .combined_bytes = in_memory ? with_work * bytes : 0,
          .is_split = splits > 1,
          .even = even};
}

double cycles_of(const KernelCost& dkdv, const KernelCost& dq, const PairCosts& costs, double sms) {
  double cycles = std::max(dkdv.longest, dq.longest);
  if (dkdv.waves + dq.waves > 1) {
    const double tail = costs.tail_of_dq * dq.longest + costs.tail_of_dkdv * dkdv.longest;
    cycles = std::max({dkdv.longest, dq.longest, dkdv.all + dq.all + tail});
    if (dkdv.is_split)
      cycles = std::max(cycles, std::ceil(dkdv.waves - (dkdv.even ? 0 : costs.masked_wave)) * dkdv.longest);
  }
  const double combined = dkdv.combined_bytes + dq.combined_bytes;
  return costs.preprocess + cycles + (combined > 0 ? costs.combine + combined / (sms * costs.combine_rate) : 0);
}

}  // namespace

double cycles_of(const TileChoice& one, ElementKind kind, int device) {
  const CostInput c{.arch = arch_spec(device),
                    .tile = one.kernel->tile,
                    .workload = one.workload,
                    .splitting = one.splitting,
                    .kind = kind,
                    .sms = static_cast<double>(device_info(device).sm_count),
                    .has_wgmma = one.kernel->tile.warpgroup && threads_allowed(wgmma_probe(), device) == kWarpgroup};
  return one.splitting.split.in_cluster ? cycles_of_clusters(c) : cycles_of_splits(c);
}

BackwardChoice fastest_pair(const std::vector<TileChoice>& dkdv, const std::vector<TileChoice>& dq, int device) {
  const PairCosts& costs = arch_spec(device).pair;
  const double sms = device_info(device).sm_count;
  std::vector<KernelCost> dq_costs;
  for (const TileChoice& one : dq) dq_costs.push_back(cost_of(one, costs));
  std::size_t best_dkdv = 0, best_dq = 0;
  double least = 0;
  for (std::size_t i = 0; i < dkdv.size(); ++i) {
    const KernelCost dkdv_cost = cost_of(dkdv[i], costs);
    for (std::size_t j = 0; j < dq.size(); ++j) {
      const bool alike = dkdv[i].kernel->tile.rows() == dq[j].kernel->tile.rows();
      const double cycles = cycles_of(dkdv_cost, dq_costs[j], costs, sms) * (alike ? 1 : costs.unequal_rows);
      if ((i == 0 && j == 0) || cycles < least) best_dkdv = i, best_dq = j, least = cycles;
    }
  }
  return {.dkdv = dkdv[best_dkdv], .dq = dq[best_dq], .cycles = least};
}

}  // namespace fovea::cuda::any

// A prediction: cycles of a thread block per streamed tile, of the longest thread block, then of all in waves.
#include "cuda/attention/any/estimate.h"

#include <algorithm>
#include <cmath>

#include "cuda/attention/any/arch_spec.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"

namespace fovea::cuda::any {
namespace {

const TileCosts& costs_of(const MmaTiles& tiles, const TileShape& tile, int device) {
  if (tile.warpgroup && threads_allowed(wgmma_probe(), device) == kWarpgroup) return tiles.wgmma;
  return tile.split_warps > 1 ? tiles.few_rows : tile.row_tiles > 1 ? tiles.two_tiles : tiles.one_tile;
}

const TileCosts& costs_of(const FmaTiles& tiles, const TileShape& tile, int) {
  return tile.split_warps > 1  ? tiles.few_rows
         : tile.warps < 4      ? tiles.few_warps
         : tile.lane_rows == 2 ? tiles.wide_lanes
                               : tiles.others;
}

template <class Tiles>
const KernelSpec<Tiles>& spec_of(const WidthSpec<Tiles>& width, Kernel kernel) {
  return kernel == Kernel::forward ? width.forward : kernel == Kernel::backward_dkdv ? width.dkdv : width.dq;
}

// One choice, and what it costs on one chip.
struct CostInput {
  const TileShape& tile;
  const Workload& workload;
  const Splitting& splitting;
  const TileCosts& products;
  const KernelCosts& kernel;
  double sms;

  // Cycles of a thread block for one streamed tile, where `ctas` of them share the rate of an SM. A product takes at
  // least its chain.
  double tile_cycles(double ctas) const {
    const double elements = static_cast<double>(tile.rows() * tile.streamed_rows()) * (tile.dim + products.softmax);
    return workload.products * std::max(products.chain, elements * std::max(ctas, alone()) / products.rate);
  }
  double alone() const { return splitting.max_ctas_per_sm > 1 ? products.alone : 1; }
  double result_bytes() const { return 4 * workload.result_floats * tile.rows(); }  // fp32, of one split of a tile
  bool in_cluster() const { return splitting.split.in_cluster; }
  bool in_memory() const { return splitting.split.splits > 1 && !in_cluster(); }
};

template <class Tiles>
CostInput input_of(const WidthSpec<Tiles>& width, const TileChoice& one, int device) {
  const KernelSpec<Tiles>& spec = spec_of(width, one.workload.kernel);
  return {.tile = one.kernel->tile,
          .workload = one.workload,
          .splitting = one.splitting,
          .products = costs_of(spec.tiles, one.kernel->tile, device),
          .kernel = spec.costs,
          .sms = static_cast<double>(device_info(device).sm_count)};
}

// Cycles of a kernel without its launch.
struct KernelTime {
  double alone = 0;    // of the kernel alone on the chip, without combining
  double longest = 0;  // of its longest thread block
  double share = 0;    // of an SM, if all had equally much work
  double waves = 0;    // thread blocks with work, divided by those that fit the chip
  double combine = 0;  // reading the partials of splits through memory
  bool equal_tiles = false;
};

// Cycles of a thread block beside its streamed tiles.
double fixed_cycles(const CostInput& c) {
  const double resident = c.splitting.ctas_per_sm;
  if (c.in_memory()) return c.kernel.prologue + c.result_bytes() * resident / c.kernel.store_rate;
  if (!c.in_cluster()) return c.kernel.prologue;
  return c.kernel.prologue + c.result_bytes() * resident / c.kernel.cluster_rate +
         c.workload.results * (c.kernel.barriers + c.kernel.barriers_per_split * c.splitting.split.splits);
}

KernelTime time_of(const CostInput& c) {
  const Workload& workload = c.workload;
  const KernelCosts& costs = c.kernel;
  const int splits = c.splitting.split.splits;
  const double resident = std::max(c.splitting.ctas_per_sm, 1.0), capacity = std::max(c.splitting.capacity, 1.0);
  const double sms = capacity / resident;
  const double tiles = static_cast<double>(workload.tiles), busy = workload.busy_tiles, all = tiles * splits;
  const auto length =
      static_cast<double>(c.in_cluster() ? divide_up(workload.longest, splits) : c.splitting.split.tiles_per_split);
  const double balance = workload.work > 0 ? workload.work / (tiles * static_cast<double>(workload.longest)) : 1.0;
  const bool balanced = equal_tiles(workload) || length <= 1;
  // Under a mask, rounding up adds half a split to every tile on average. Splits without work end at once.
  const double with_work = balanced || c.in_cluster() ? all
                           : splits > 1               ? std::max(busy, workload.work / length + 0.5 * busy)
                                                      : tiles;
  // The SM with the most thread blocks decides. Those without work count where they keep others from being spread.
  const auto busiest = [sms](double ctas) { return std::ceil(ctas / sms - 1e-9); };
  const double sharing = std::clamp(busiest(all), 1.0, resident);
  const double fixed = fixed_cycles(c), full = c.tile_cycles(resident);
  KernelTime time;
  time.equal_tiles = equal_tiles(workload);
  time.waves = with_work / capacity;
  time.longest = length * c.tile_cycles(sharing * (balance + (1 - balance) * costs.short_neighbours)) + fixed;
  // Under a mask, rounding up adds half a streamed tile to every thread block of a cluster but one.
  const double work =
      balanced || !c.in_cluster() ? workload.work : std::min(workload.work + 0.5 * busy * (splits - 1), all * length);
  time.share = (work * full + with_work * fixed) / capacity;
  if (c.in_memory())
    time.combine =
        workload.results * costs.per_split * splits + with_work * c.result_bytes() / (c.sms * costs.store_rate);
  const double in_turn = busiest(with_work), whole = std::floor(in_turn / resident), rest = in_turn - whole * resident;
  const double in_waves = whole * (length * full + fixed) + (rest > 0 ? length * c.tile_cycles(rest) + fixed : 0.0);
  if (time.waves <= 1) {
    time.alone = time.longest;
  } else if (balanced) {
    time.alone = in_waves + costs.smooth_waves * (std::max(time.longest, time.share) - in_waves);
  } else {
    const double tail = c.in_cluster() ? costs.tail_clusters
                        : splits <= 2  ? costs.tail_few_splits
                                       : costs.tail_many_splits;
    time.alone = std::max(time.longest, std::min(time.share + tail * time.longest, in_waves));
  }
  return time;
}

double cycles_of(const CostInput& c) {
  const KernelTime time = time_of(c);
  return c.kernel.start + time.alone + time.combine + (c.in_memory() ? c.workload.results * c.kernel.combine : 0.0);
}

double cycles_of(const KernelTime& dkdv, const KernelTime& dq, const PairCosts& costs, bool unequal_rows) {
  double cycles = std::max({dkdv.alone, dq.alone, costs.overlap * (dkdv.share + dq.share)});
  if (dkdv.waves + dq.waves > 1) {
    cycles = std::max(cycles, costs.overlap * (dkdv.share + dq.share) + costs.tail_of_dq * dq.longest);
    if (dq.equal_tiles) cycles = std::max(cycles, dkdv.alone + costs.following_dq * dq.longest);
  }
  const double combine = dkdv.combine + dq.combine;
  return costs.start + cycles * (unequal_rows ? costs.unequal_rows : 1) + combine + (combine > 0 ? costs.combine : 0.0);
}

template <class Tiles>
BackwardChoice fastest_pair(const WidthSpec<Tiles>& width, const std::vector<TileChoice>& dkdv,
                            const std::vector<TileChoice>& dq, int device) {
  std::vector<KernelTime> dq_times;
  for (const TileChoice& one : dq) dq_times.push_back(time_of(input_of(width, one, device)));
  std::size_t best_dkdv = 0, best_dq = 0;
  double least = HUGE_VAL;
  for (std::size_t i = 0; i < dkdv.size(); ++i) {
    const KernelTime dkdv_time = time_of(input_of(width, dkdv[i], device));
    for (std::size_t j = 0; j < dq.size(); ++j) {
      const bool unequal_rows = dkdv[i].kernel->tile.rows() != dq[j].kernel->tile.rows();
      const double cycles = cycles_of(dkdv_time, dq_times[j], width.pair, unequal_rows);
      if (cycles < least) best_dkdv = i, best_dq = j, least = cycles;
    }
  }
  return {.dkdv = dkdv[best_dkdv], .dq = dq[best_dq], .cycles = least};
}

}  // namespace

double cycles_of(const TileChoice& one, ElementKind kind, int device) {
  const ArchSpec& arch = arch_spec(device);
  return kind == ElementKind::fp32 ? cycles_of(input_of(arch.fp32, one, device))
                                   : cycles_of(input_of(arch.bits16, one, device));
}

BackwardChoice fastest_pair(const std::vector<TileChoice>& dkdv, const std::vector<TileChoice>& dq, ElementKind kind,
                            int device) {
  const ArchSpec& arch = arch_spec(device);
  return kind == ElementKind::fp32 ? fastest_pair(arch.fp32, dkdv, dq, device)
                                   : fastest_pair(arch.bits16, dkdv, dq, device);
}

}  // namespace fovea::cuda::any

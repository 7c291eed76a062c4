// A prediction: cycles of a thread block per streamed tile, then of the longest thread block, then of the whole grid.
#include "cuda/attention/any/estimate.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "cuda/attention/any/arch_spec.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"

namespace fovea::cuda::any {
namespace {

// The probe allows a warpgroup of threads if the code that the device runs has wgmma (parameters.h).
bool uses_wgmma(const TileShape& tile, int device) {
  return tile.warpgroup && threads_allowed(wgmma_probe(), device) == kWarpgroup;
}

const TileCosts& costs_of(const MmaTiles& tiles, const TileShape& tile, int device) {
  if (uses_wgmma(tile, device)) return tiles.wgmma;
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
  double sms, element_bytes;

  // Cycles of a thread block for one streamed tile on an SM with `ctas` resident thread blocks. A product takes at
  // least as long as its dependent chain.
  double tile_cycles(double ctas) const {
    const double elements = static_cast<double>(tile.rows() * tile.streamed_rows()) * (tile.dim + products.softmax);
    const double loaded = 2 * row_bytes() * tile.streamed_rows();  // K and V, or Q and dO
    return workload.products * std::max(products.chain, elements * std::max(ctas, alone()) / products.rate) +
           ctas * loaded / kernel.stream_rate;
  }
  double row_bytes() const { return static_cast<double>(tile.dim) * element_bytes; }
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
          .sms = static_cast<double>(device_info(device).sm_count),
          .element_bytes = std::is_same_v<Tiles, FmaTiles> ? 4.0 : 2.0};
}

// Cycles of a kernel without its launch.
struct KernelTime {
  double alone = 0;     // of the kernel alone on the chip, without combining
  double longest = 0;   // of its longest thread block
  double whole = 0;     // of its longest thread block on an SM with as many thread blocks as fit
  double share = 0;     // of each SM, if the work were divided evenly over all
  double waves = 0;     // thread blocks with work, divided by those that fit the chip
  double evenness = 0;  // 1: all thread blocks are equally long; 0: as unequal as under a causal mask, or more
  double combine = 0;   // reading the partials of splits through memory
};

// Cycles of a thread block outside its main loop.
double fixed_cycles(const CostInput& c) {
  const double resident = c.splitting.ctas_per_sm;
  const double all = c.kernel.prologue + c.row_bytes() * c.tile.rows() * resident / c.kernel.row_rate;
  if (c.in_memory()) return all + c.result_bytes() * resident / c.kernel.store_rate;
  if (!c.in_cluster()) return all;
  return all + c.result_bytes() * resident / c.kernel.cluster_rate +
         c.workload.results * (c.kernel.barriers + c.kernel.barriers_per_split * c.splitting.split.splits);
}

double all_ctas(const CostInput& c) { return static_cast<double>(c.workload.tiles) * c.splitting.split.splits; }
double resident(const CostInput& c) { return std::max(c.splitting.ctas_per_sm, 1.0); }
double capacity(const CostInput& c) { return std::max(c.splitting.capacity, 1.0); }
double usable_sms(const CostInput& c) { return capacity(c) / resident(c); }
// Waves of `ctas` thread blocks over `slots`, each of which holds one thread block at a time.
double waves_of(double ctas, double slots) { return std::ceil(ctas / slots - 1e-9); }

// Thread blocks on the busiest SM, if `others` thread blocks of the other gradient kernel share the chip.
int sharing_of(const CostInput& c, double others) {
  return static_cast<int>(std::clamp(waves_of(all_ctas(c) + others, usable_sms(c)), 1.0, resident(c)));
}

// The mean work of the tiles that see anything, divided by the work of the longest. 1 if there is nothing to stream.
double balance_of(const Workload& workload) {
  if (workload.longest == 0) return 1;
  return std::min(workload.work / (std::max(workload.busy_tiles, 1.0) * static_cast<double>(workload.longest)), 1.0);
}

// KernelTime::evenness. Under a causal mask with as many queries as keys, balance_of is about a half.
double evenness_of(const Workload& workload, double length) {
  if (has_equal_tiles(workload) || length <= 1) return 1;
  return std::pow(std::max(2 * balance_of(workload) - 1, 0.0), 2);
}

KernelTime time_of(const CostInput& c, int sharing) {
  const Workload& workload = c.workload;
  const KernelCosts& costs = c.kernel;
  const int splits = c.splitting.split.splits;
  const double all = all_ctas(c), busy = std::max(workload.busy_tiles, 1.0);
  const auto length =
      static_cast<double>(c.in_cluster() ? divide_up(workload.longest, splits) : c.splitting.split.tiles_per_split);
  // Under a mask, rounding up adds half a split to every tile on average. Splits without work end at once.
  const double with_work = has_equal_tiles(workload) ? all
                           : c.in_cluster()          ? busy * splits
                           : splits > 1 ? std::min(std::max(busy, workload.work / length + 0.5 * busy), all)
                                        : busy;
  const double fixed = fixed_cycles(c), full = c.tile_cycles(resident(c));
  KernelTime time;
  time.evenness = evenness_of(workload, length);
  time.waves = with_work / capacity(c);
  time.whole = length * full + fixed;
  // Under a mask an SM's thread blocks end at different times, and the last ones run faster.
  const double balance = balance_of(workload);
  time.longest = length * c.tile_cycles(sharing * (balance + (1 - balance) * costs.short_neighbours)) + fixed;
  // Under a mask, rounding up adds half a streamed tile to every thread block of a cluster but one.
  const double work = time.evenness < 1 && c.in_cluster()
                          ? std::min(workload.work + 0.5 * busy * (splits - 1), all * length)
                          : workload.work;
  time.share = (work * full + with_work * fixed) / capacity(c);
  if (c.in_memory())
    time.combine =
        workload.results * costs.per_split * splits + with_work * c.result_bytes() / (c.sms * costs.store_rate);
  // In whole waves, the SM with the most thread blocks ends last.
  const double on_busiest_sm = waves_of(with_work, usable_sms(c)), full_waves = std::floor(on_busiest_sm / resident(c));
  const double rest = on_busiest_sm - full_waves * resident(c);
  const double in_waves = full_waves * time.whole + (rest > 0 ? length * c.tile_cycles(rest) + fixed : 0.0);
  const double tail = c.in_cluster() ? costs.tail_clusters
                      : splits <= 2  ? costs.tail_few_splits
                                     : costs.tail_many_splits;
  const double equal = in_waves + costs.smooth_waves * (std::max(time.longest, time.share) - in_waves);
  const double unequal = std::max(time.longest, std::min(time.share + tail * time.longest, in_waves));
  time.alone = time.waves <= 1 ? time.longest : std::lerp(unequal, equal, time.evenness);
  // Thread blocks without work occupy a slot for a while. In a cluster they also take part in its barriers.
  const double idle = (all - with_work) * (costs.idle + (c.in_cluster() ? fixed : 0.0)) / capacity(c);
  time.alone += idle, time.share += idle;
  return time;
}

double cycles_of(const CostInput& c) {
  const KernelTime time = time_of(c, sharing_of(c, 0));
  return c.kernel.start + time.alone + time.combine + (c.in_memory() ? c.workload.results * c.kernel.combine : 0.0);
}

// The end of both gradient kernels, if all thread blocks of each are equally long. dQ's thread blocks run in the slots
// that dK/dV's leave free. `early`: share of the slots that are free after dK/dV's last full wave; `late`: share that
// is free one dK/dV thread block later, after `delay`. Times after that wave are in `turns`, durations of one dQ thread
// block. dQ's last thread block ends after a whole number of turns, or `delay` later.
double end_of_equal_pair(const KernelTime& dkdv, const KernelTime& dq) {
  const double full = std::floor(dkdv.waves + 1e-9);
  const double late = dkdv.waves - full < 1e-6 ? 0.0 : dkdv.waves - full, early = 1 - late;
  const double delay = late > 0 ? dkdv.whole / dq.whole : 0.0;
  const auto done = [&](double turns) {  // dQ's finished thread blocks, divided by the slots
    return early * std::floor(turns + 1e-9) + late * std::floor(std::max(turns - delay, 0.0) + 1e-9);
  };
  double turns = HUGE_VAL;
  for (const double shift : {0.0, delay}) {
    // Starts below the answer, unless the answer is below `delay`: then dK/dV ends last, whatever dQ does.
    double at = std::max(std::floor(dq.waves + late * delay - shift) - 2, 0.0) + shift;
    while (done(at) < dq.waves - 1e-9) at += 1;
    turns = std::min(turns, at);
  }
  return std::max(full * dkdv.whole + turns * dq.whole, std::ceil(dkdv.waves - 1e-9) * dkdv.whole);
}

double cycles_of(const KernelTime& dkdv, const KernelTime& dq, const PairCosts& costs, bool rows_differ) {
  const double shares = costs.overlap * (dkdv.share + dq.share);
  double cycles = std::max({dkdv.alone, dq.alone, shares});
  if (dkdv.waves + dq.waves > 1) {
    const double equal = std::lerp(end_of_equal_pair(dkdv, dq), cycles, costs.smooth_waves);
    const double unequal = std::max(cycles, shares + costs.tail_of_dq * dq.longest);
    cycles = std::max(cycles, std::lerp(unequal, equal, std::min(dkdv.evenness, dq.evenness)));
  }
  const double combine = dkdv.combine + dq.combine;
  return costs.start + cycles * (rows_differ ? costs.unequal_rows : 1) + combine + (combine > 0 ? costs.combine : 0.0);
}

// The times of a choice if the busiest SM holds 1, 2, ... thread blocks.
std::vector<KernelTime> times_of(const CostInput& c) {
  std::vector<KernelTime> times;
  for (int sharing = 1; sharing <= static_cast<int>(resident(c)); ++sharing) times.push_back(time_of(c, sharing));
  return times;
}

template <class Tiles>
BackwardChoice fastest_pair(const WidthSpec<Tiles>& width, const std::vector<TileChoice>& dkdv,
                            const std::vector<TileChoice>& dq, int device) {
  struct Priced {
    CostInput input;
    std::vector<KernelTime> times;
    // If `others` thread blocks of the other kernel share the chip.
    const KernelTime& among(double others) const {
      return times[static_cast<std::size_t>(sharing_of(input, others) - 1)];
    }
  };
  const auto priced = [&width, device](const std::vector<TileChoice>& choices) {
    std::vector<Priced> all;
    for (const TileChoice& one : choices) {
      const CostInput input = input_of(width, one, device);
      all.push_back({input, times_of(input)});
    }
    return all;
  };
  const std::vector<Priced> of_dkdv = priced(dkdv), of_dq = priced(dq);
  const double one_more_kernel = arch_spec(device).weight_of_one_more_kernel;
  BackwardChoice best;
  double least = HUGE_VAL;
  for (std::size_t i = 0; i < dkdv.size(); ++i) {
    for (std::size_t j = 0; j < dq.size(); ++j) {
      const CostInput &a = of_dkdv[i].input, &b = of_dq[j].input;
      const double cycles = cycles_of(of_dkdv[i].among(all_ctas(b)), of_dq[j].among(all_ctas(a)), width.pair,
                                      a.tile.rows() != b.tile.rows());
      const double weighted = cycles * (a.in_memory() || b.in_memory() ? one_more_kernel : 1);
      if (weighted >= least) continue;
      least = weighted;
      best = {.dkdv = dkdv[i], .dq = dq[j], .cycles = cycles};
    }
  }
  return best;
}

}  // namespace

double extra_cycles(const TileChoice& one, int device) {
  const Split& split = one.splitting.split;
  if (one.workload.kernel != Kernel::forward || split.splits == 1 || split.in_cluster) return 0;
  const ArchSpec& arch = arch_spec(device);
  const double rows = static_cast<double>(one.workload.tiles) * split.splits * one.kernel->tile.rows();
  return arch.launch_seconds * arch.clock_hz + 4 * one.workload.result_floats * rows / arch.memory_rate;
}

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

double seconds_of(double cycles, const TileShape& tile, int device) {
  const ArchSpec& arch = arch_spec(device);
  return cycles / arch.clock_hz * (uses_wgmma(tile, device) ? arch.wgmma_in_sequence : 1);
}

}  // namespace fovea::cuda::any

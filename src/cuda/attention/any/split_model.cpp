// The model: parts of work in cycles, fitted to measurements.
#include "cuda/attention/any/split_model.h"

#include <algorithm>
#include <cmath>

#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"

namespace fovea::cuda::any {
namespace {

// Fitted to sweeps of tiles and parts on an H200 (docs/kernels/cuda_any.md).
constexpr double kJoin = 4500;           // launching a kernel that joins
constexpr double kJoinPart = 430;        // a row reads its parts one after the other
constexpr double kStoreRate = 23;        // bytes a clock of one multiprocessor
constexpr double kShortestShared = 830;  // the chain of one product of a block where warps share rows
constexpr double kClusterPart = 86;      // what each part adds to the barriers of a cluster
constexpr double kClusterShort = 0.51;   // of the places that short parts leave, how many count

// What depends on how a tile multiplies.
struct Costs {
  double rate;                             // multiply-add operations a clock of one multiprocessor; 0: CostInput::rate
  double begin;                            // launching, and what a block of threads does before its first product
  double shortest;                         // the chain of one product of a block, its share of softmax and barriers
  double alone;                            // time of a block of threads that has a multiprocessor to itself, of two
  double softmax;                          // columns of a product that take as long as what comes between the products
  double cluster_join;                     // two barriers of a cluster
  double cluster_rate;                     // bytes a clock and multiprocessor of results that its blocks join
  double cluster_shortest, cluster_alone;  // where parts share the blocks evenly
  double cluster_speed;                    // of warps with 16 rows in forward, of which many find a place
  // Clusters that come one after the other: shares of all products, of what the blocks do besides, of the longest part.
  double cluster_products, cluster_once, cluster_tail;
};
constexpr Costs kByWarps{.rate = 0,
                         .begin = 5400,
                         .shortest = 930,
                         .alone = 0.61,
                         .softmax = 0,
                         .cluster_join = 2430,
                         .cluster_rate = 16.8,
                         .cluster_shortest = 435,
                         .cluster_alone = 0.87,
                         .cluster_speed = 1.18,
                         .cluster_products = 0.85,
                         .cluster_once = 0.98,
                         .cluster_tail = 0.19};
constexpr Costs kForwardByWarpgroups{.rate = 1410,
                                     .begin = 4320,
                                     .shortest = 770,
                                     .alone = 0.61,
                                     .softmax = 37,
                                     .cluster_join = 1070,
                                     .cluster_rate = 17.9,
                                     .cluster_shortest = 560,
                                     .cluster_alone = 1.06,
                                     .cluster_speed = 0.92,
                                     .cluster_products = 0.55,
                                     .cluster_once = 1.26,
                                     .cluster_tail = 0.16};
// Of backward the choice is fitted more than the times, which come out a fifth too short.
constexpr Costs kKeysByWarpgroups{.rate = 1384,
                                  .begin = 3520,
                                  .shortest = 321,
                                  .alone = 0.83,
                                  .softmax = 22.6,
                                  .cluster_join = 1467,
                                  .cluster_rate = 18.2,
                                  .cluster_shortest = 540,
                                  .cluster_alone = 0.27,
                                  .cluster_speed = 1,
                                  .cluster_products = 0.71,
                                  .cluster_once = 1.54,
                                  .cluster_tail = 0.065};
constexpr Costs kQueriesByWarpgroups{.rate = 2158,
                                     .begin = 5512,
                                     .shortest = 496,
                                     .alone = 0.53,
                                     .softmax = 32.6,
                                     .cluster_join = 1928,
                                     .cluster_rate = 12.7,
                                     .cluster_shortest = 492,
                                     .cluster_alone = 0.96,
                                     .cluster_speed = 1,
                                     .cluster_products = 0.72,
                                     .cluster_once = 1.08,
                                     .cluster_tail = 0.095};

// One kernel on one device.
struct CostInput {
  const KernelInstance& kernel;
  ElementKind kind;
  const Workload& load;
  double processors;
  bool by_warpgroups;  // its code has wgmma

  const TileShape& tile() const { return kernel.tile; }
  const Costs& costs() const {
    if (!by_warpgroups) return kByWarps;
    switch (load.kernel) {
      case Kernel::forward:
        return kForwardByWarpgroups;
      case Kernel::backward_keys:
        return kKeysByWarpgroups;
      case Kernel::backward_queries:
        return kQueriesByWarpgroups;
    }
    return kByWarps;
  }

  // Multiply-add operations that one multiprocessor was seen to make in a clock.
  double rate() const {
    if (kind == ElementKind::fp32)
      return tile().sharing > 1 ? 46 : tile().warps < 4 ? 66 : tile().lane_rows == 2 ? 82 : 79;
    if (by_warpgroups) return costs().rate;
    return tile().sharing > 1 ? 270 : tile().row_tiles > 1 ? 810 : 580;
  }

  // Of a block of threads, for one block of the passing side.
  double block_cycles(double shortest, double resident) const {
    const double elements = static_cast<double>(tile().rows() * tile().block()) * (tile().dim + costs().softmax);
    return load.products * std::max(shortest, elements * resident / rate());
  }
};

double cycles_of_splits(const CostInput& c, const Splitting& cut) {
  const TileShape& tile = c.tile();
  const Workload& load = c.load;
  const bool even = is_even(load);
  const int splits = cut.split.splits;
  const double capacity = cut.capacity, resident = cut.most, tiles = static_cast<double>(load.tiles);
  const double part = static_cast<double>(cut.split.blocks_per_split), all = tiles * splits;
  const double parts = even ? all : std::max(tiles, load.work / part + (splits > 1 ? 0.5 * tiles : 0.0));
  // Parts without work count here: where they pass by, those with work are no longer spread evenly.
  const double alone = all <= c.processors && resident > 1 ? c.costs().alone : 1.0;
  const double block = c.block_cycles(tile.sharing > 1 ? kShortestShared : c.costs().shortest, alone * resident);
  const double part_bytes = 4 * load.result_floats * tile.rows();
  const double once = c.costs().begin + (splits > 1 ? part_bytes * resident / kStoreRate : 0.0);
  const double longest = part * block + once;
  double cycles = std::ceil(std::max(1.0, parts / capacity)) * longest;
  if (parts > capacity && !even) {
    // Whole and halved rows come longest first and fit well; shorter parts leave about half of one at the end.
    const double tail = splits <= 2 ? 0.03 : 0.53;
    cycles = std::min(cycles, std::max(longest, (load.work * block + parts * once) / capacity + tail * longest));
  }
  if (splits > 1)
    cycles += load.joins * (kJoin + kJoinPart * splits) + parts * part_bytes / (c.processors * kStoreRate);
  return cycles;
}

// The same where the parts of a tile are a cluster. Under a mask the longest parts share their multiprocessor with
// short ones, which leave early.
double cycles_of_clusters(const CostInput& c, const Splitting& cut) {
  const Workload& load = c.load;
  const Costs& costs = c.costs();
  const int cluster = cut.split.splits;
  const double resident = cut.resident, most = cut.most, capacity = cut.capacity;
  const double all = static_cast<double>(load.tiles * cluster);
  const double alone = resident > 1 ? costs.cluster_alone * 2 : 1.0;
  const double evenness = load.work / static_cast<double>(load.tiles * load.longest);
  const double together = std::min(most, all / c.processors) * (evenness + (1 - evenness) * kClusterShort);
  const bool faster = c.tile().row_tiles == 1 && c.kind != ElementKind::fp32 && load.kernel == Kernel::forward;
  const double speed = faster ? costs.cluster_speed : 1.0;
  const double block = c.block_cycles(costs.cluster_shortest, std::max(alone, together) / speed);
  const double once = costs.begin + load.joins * (costs.cluster_join + kClusterPart * cluster) +
                      4 * load.result_floats * c.tile().rows() * most / costs.cluster_rate;
  const std::int64_t part = divide_up(load.longest, cluster);
  const double longest = static_cast<double>(part) * block + once;
  if (all <= capacity) return longest;
  const bool equally_long = is_even(load) || part == 1;
  if (equally_long) return std::ceil(all / capacity) * longest;
  const double crowded = c.block_cycles(costs.cluster_shortest, std::max(alone, most) / speed);
  return std::max(longest, (costs.cluster_products * load.work * crowded + costs.cluster_once * all * once) / capacity +
                               costs.cluster_tail * longest);
}

}  // namespace

double cycles_of(const TileChoice& one, ElementKind kind, int device) {
  const CostInput c{
      .kernel = *one.kernel,
      .kind = kind,
      .load = one.load,
      .processors = static_cast<double>(device_info(device).multiprocessors),
      .by_warpgroups = one.kernel->tile.warpgroup && threads_allowed(wgmma_probe(), device) == kWarpgroup};
  return one.splitting.split.in_cluster ? cycles_of_clusters(c, one.splitting) : cycles_of_splits(c, one.splitting);
}

}  // namespace fovea::cuda::any

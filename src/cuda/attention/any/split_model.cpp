// The model: parts of work in clocks, fitted to measurements.
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
  double rate;                             // multiply-add operations a clock of one multiprocessor; 0: Case::rate
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
struct Case {
  const KernelInstance& kernel;
  ElementKind kind;
  const Load& load;
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
  double block_clocks(double shortest, double resident) const {
    const double elements = static_cast<double>(tile().rows() * tile().block()) * (tile().dim + costs().softmax);
    return load.products * std::max(shortest, elements * resident / rate());
  }
};

double clocks_of_parts(const Case& c, const Cut& cut) {
  const TileShape& tile = c.tile();
  const Load& load = c.load;
  const bool even = is_even(load);
  const int splits = cut.split.splits;
  const double capacity = cut.capacity, resident = cut.most, tiles = static_cast<double>(load.tiles);
  const double part = static_cast<double>(cut.split.blocks_per_split), all = tiles * splits;
  const double parts = even ? all : std::max(tiles, load.work / part + (splits > 1 ? 0.5 * tiles : 0.0));
  // Parts without work count here: where they pass by, those with work are no longer spread evenly.
  const double alone = all <= c.processors && resident > 1 ? c.costs().alone : 1.0;
  const double block = c.block_clocks(tile.sharing > 1 ? kShortestShared : c.costs().shortest, alone * resident);
  const double part_bytes = 4 * load.result_floats * tile.rows();
  const double once = c.costs().begin + (splits > 1 ? part_bytes * resident / kStoreRate : 0.0);
  const double longest = part * block + once;
  double clocks = std::ceil(std::max(1.0, parts / capacity)) * longest;
  if (parts > capacity && !even) {
    // Whole and halved rows come longest first and fit well; shorter parts leave about half of one at the end.
    const double tail = splits <= 2 ? 0.03 : 0.53;
    clocks = std::min(clocks, std::max(longest, (load.work * block + parts * once) / capacity + tail * longest));
  }
  if (splits > 1)
    clocks += load.joins * (kJoin + kJoinPart * splits) + parts * part_bytes / (c.processors * kStoreRate);
  return clocks;
}

// The same where the parts of a tile are a cluster. Under a mask the longest parts share their multiprocessor with
// short ones, which leave early.
double clocks_of_clusters(const Case& c, const Cut& cut) {
  const Load& load = c.load;
  const Costs& costs = c.costs();
  const int cluster = cut.split.splits;
  const double resident = cut.resident, most = cut.most, capacity = cut.capacity;
  const double all = static_cast<double>(load.tiles * cluster);
  const double alone = resident > 1 ? costs.cluster_alone * 2 : 1.0;
  const double evenness = load.work / static_cast<double>(load.tiles * load.longest);
  const double together = std::min(most, all / c.processors) * (evenness + (1 - evenness) * kClusterShort);
  const bool faster = c.tile().row_tiles == 1 && c.kind != ElementKind::fp32 && load.kernel == Kernel::forward;
  const double speed = faster ? costs.cluster_speed : 1.0;
  const double block = c.block_clocks(costs.cluster_shortest, std::max(alone, together) / speed);
  const double once = costs.begin + load.joins * (costs.cluster_join + kClusterPart * cluster) +
                      4 * load.result_floats * c.tile().rows() * most / costs.cluster_rate;
  const std::int64_t part = divide_up(load.longest, cluster);
  const double longest = static_cast<double>(part) * block + once;
  if (all <= capacity) return longest;
  const bool equally_long = is_even(load) || part == 1;
  if (equally_long) return std::ceil(all / capacity) * longest;
  const double crowded = c.block_clocks(costs.cluster_shortest, std::max(alone, most) / speed);
  return std::max(longest, (costs.cluster_products * load.work * crowded + costs.cluster_once * all * once) / capacity +
                               costs.cluster_tail * longest);
}

// The least shared memory with which no more than `resident` blocks of threads find a place on a multiprocessor: those
// of a cluster are else put on few of them, while others have nothing to do.
int spread_bytes(const KernelInstance& kernel, std::int64_t resident, int device) {
  constexpr int kReserved = 1024;  // of each block
  const auto one_more = static_cast<int>(device_info(device).shared_of_multiprocessor / (resident + 1)) - kReserved;
  return std::clamp(one_more / 128 * 128 + 128, kernel.shared_bytes,
                    std::max(kernel.shared_bytes, usable_shared_memory(device)));
}

Split split_into(std::int64_t splits, const TileShape& tile, const Load& load) {
  const std::int64_t longest = std::max<std::int64_t>(load.longest, 1), part = divide_up(longest, splits);
  const std::int64_t parts = divide_up(longest, part);
  return {.by_splits = divisor(parts),
          .splits = static_cast<int>(parts),
          .blocks_per_split = static_cast<int>(part),
          .rows = static_cast<std::int16_t>(tile.rows()),
          .block = static_cast<std::int16_t>(tile.block())};
}

Split cluster_of(int blocks, const TileShape& tile) {
  return {.by_splits = divisor(blocks),
          .splits = blocks,
          .rows = static_cast<std::int16_t>(tile.rows()),
          .block = static_cast<std::int16_t>(tile.block()),
          .in_cluster = true};
}

// As few blocks of threads to a multiprocessor as let all find a place; no cut if there are no such clusters.
Cut cut_into_cluster(const KernelInstance& kernel, const Load& load, int cluster, int device) {
  const TileShape& tile = kernel.tile;
  const std::int64_t processors = device_info(device).multiprocessors, all = load.tiles * cluster;
  const int resident = resident_blocks(kernel.function, tile.threads(), kernel.shared_bytes, device);
  for (auto most = std::clamp<std::int64_t>(divide_up(all, processors), 1, std::max(resident, 1));; ++most) {
    const int bytes = spread_bytes(kernel, most, device);
    const int capacity = cluster * resident_clusters(kernel.function, tile.threads(), bytes, cluster, device);
    if (capacity < all && most < resident) continue;
    return {.split = cluster_of(cluster, tile),
            .shared_bytes = bytes,
            .resident = static_cast<double>(resident),
            .most = static_cast<double>(most),
            .capacity = static_cast<double>(capacity)};
  }
}

}  // namespace

bool is_even(const Load& load) { return load.work >= 0.99 * static_cast<double>(load.tiles * load.longest); }

std::vector<Cut> cuts_of(const KernelInstance& kernel, const Load& load, int device, const Forced& forced) {
  const CurrentDevice current(device);
  const TileShape& tile = kernel.tile;
  const std::int64_t processors = device_info(device).multiprocessors;
  const int resident = resident_blocks(kernel.function, tile.threads(), kernel.shared_bytes, device);
  std::vector<Cut> cuts;
  const auto add_parts = [&](std::int64_t splits) {
    cuts.push_back({.split = split_into(splits, tile, load),
                    .shared_bytes = kernel.shared_bytes,
                    .resident = static_cast<double>(resident),
                    .most = static_cast<double>(resident),
                    .capacity = static_cast<double>(processors * resident)});
  };
  const auto add_cluster = [&](int cluster) {
    if (const Cut cut = cut_into_cluster(kernel, load, cluster, device); cut.capacity > 0) cuts.push_back(cut);
  };
  if (forced.splits > 0) {
    forced.in_cluster ? add_cluster(forced.splits) : add_parts(forced.splits);
    return cuts;
  }
  add_parts(1);
  if (tile.sharing > 1 || load.tiles >= 4 * processors * resident) return cuts;
  for (std::int64_t splits = 2; splits <= std::min<std::int64_t>(kMaxSplits, load.longest); ++splits) {
    if (divide_up(load.longest, divide_up(load.longest, splits)) == splits) add_parts(splits);
  }
  if (kernel.split_roles) return cuts;  // neighbouring blocks of threads make different results
  for (int cluster = 2; cluster <= kMaxCluster; cluster *= 2) {
    if (cluster <= load.longest) add_cluster(cluster);
  }
  return cuts;
}

double clocks_of(const Cut& cut, const KernelInstance& kernel, ElementKind kind, const Load& load, int device) {
  const Case c{.kernel = kernel,
               .kind = kind,
               .load = load,
               .processors = static_cast<double>(device_info(device).multiprocessors),
               .by_warpgroups = kernel.tile.warpgroup && threads_allowed(wgmma_probe(), device) == kWarpgroup};
  return cut.split.in_cluster ? clocks_of_clusters(c, cut) : clocks_of_parts(c, cut);
}

}  // namespace fovea::cuda::any

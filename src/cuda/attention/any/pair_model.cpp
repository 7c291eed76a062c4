// The model: parts of dk and dv take their places first, those of dq fill what these leave.
#include "cuda/attention/any/pair_model.h"

#include <algorithm>
#include <cmath>

#include "cuda/runtime/device_info.h"

namespace fovea::cuda::any {
namespace {

// In clocks, fitted to all pairs of cuts of 20 problems on an H200 (docs/kernels/cuda_any.md).
constexpr double kStatistics = 550;  // their kernel, where loading the first tiles does not hide it
constexpr double kBegin = 11300;     // from a place that is free to the first product, and from the last to the end
constexpr double kRate = 81;         // multiply-add operations of one multiprocessor
constexpr double kWideRate = 83;     // with shares of 8 x 8 scores
constexpr double kAlone = 1.64;      // a block of threads that could have a neighbour, and has none, is as slow as
                                     // if so many shared its multiprocessor
constexpr double kShortestProduct = 1790;  // the chain of one product of a block
constexpr double kStoreRate = 8.2;         // bytes of one multiprocessor
constexpr double kJoin = 6400;             // launching the kernel that joins
constexpr double kJoinRate = 7.5;          // bytes a multiprocessor that it reads
constexpr double kClusterJoin = 970;       // of one result
constexpr double kClusterRate = 19.6;      // bytes a multiprocessor of results that its blocks join
constexpr double kLastOfQueries = 0.29;    // of a part of dq: how long after the chip was full the last one ends
constexpr double kLastOfKeys = 0.09;       // of a part of dk and dv
constexpr double kRests = 0.25;            // of a wave of parts under a mask, where some are no whole part
constexpr double kUnlike = 1.6;            // blocks of threads of different sizes wait for each other's places

// What a kernel with one of its cuts adds to a pair.
struct Share {
  double part = 0;    // clocks of the longest
  double all = 0;     // of all parts, over the places for them
  double waves = 0;   // of parts
  double joined = 0;  // bytes
  bool cut = false, even = false;
};

Share share_of(const TileCut& one) {
  const auto& [kernel, load, cut] = one;
  const TileShape& tile = kernel->tile;
  const int splits = cut.split.splits;
  const bool in_cluster = cut.split.in_cluster, in_memory = splits > 1 && !in_cluster, even = is_even(load);
  const auto tiles = static_cast<double>(load.tiles);
  const auto blocks = static_cast<double>(divide_up(std::max<std::int64_t>(load.longest, 1), splits));
  const double parts = in_memory && !even ? load.work / blocks + 0.5 * tiles : tiles * splits;
  const double together = cut.resident > 1 ? std::max(cut.most, kAlone) : 1.0;
  const double product =
      static_cast<double>(tile.rows() * tile.block() * tile.dim) * together / (tile.lane_rows == 2 ? kWideRate : kRate);
  const double block = load.products * std::max(kShortestProduct, product);
  const double bytes = 4 * load.result_floats * tile.rows();
  double once = kBegin;
  if (in_memory) once += bytes * cut.most / kStoreRate;
  if (in_cluster) once += load.joins * kClusterJoin + bytes * cut.most / kClusterRate;
  return {.part = blocks * block + once,
          .all = (load.work * block + parts * once) / cut.capacity,
          .waves = parts / cut.capacity,
          .joined = in_memory ? parts * bytes : 0,
          .cut = splits > 1,
          .even = even};
}

double clocks_of(const Share& keys, const Share& queries, double processors) {
  double clocks = std::max(keys.part, queries.part);
  if (keys.waves + queries.waves > 1) {
    const double last = kLastOfQueries * queries.part + kLastOfKeys * keys.part;
    clocks = std::max({keys.part, queries.part, keys.all + queries.all + last});
    if (keys.cut) clocks = std::max(clocks, std::ceil(keys.waves - (keys.even ? 0 : kRests)) * keys.part);
  }
  const double joined = keys.joined + queries.joined;
  return kStatistics + clocks + (joined > 0 ? kJoin + joined / (processors * kJoinRate) : 0);
}

}  // namespace

std::pair<TileCut, TileCut> choose_pair(const std::vector<TileCut>& keys, const std::vector<TileCut>& queries,
                                        int device) {
  const double processors = device_info(device).multiprocessors;
  std::vector<Share> of_queries;
  for (const TileCut& one : queries) of_queries.push_back(share_of(one));
  std::size_t first = 0, second = 0;
  double least = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Share of_keys = share_of(keys[i]);
    for (std::size_t j = 0; j < queries.size(); ++j) {
      const bool alike = keys[i].kernel->tile.rows() == queries[j].kernel->tile.rows();
      const double clocks = clocks_of(of_keys, of_queries[j], processors) * (alike ? 1 : kUnlike);
      if ((i == 0 && j == 0) || clocks < least) first = i, second = j, least = clocks;
    }
  }
  return {keys[first], queries[second]};
}

}  // namespace fovea::cuda::any

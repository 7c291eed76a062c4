// The model: parts of dk and dv take their places first, those of dq fill what these leave.
#include "cuda/attention/any/pair_model.h"

#include <algorithm>
#include <cmath>

#include "cuda/runtime/device_info.h"

namespace fovea::cuda::any {
namespace {

// In cycles, fitted to all pairs of cuts of 20 problems on an H200 (docs/kernels/cuda_any.md).
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
  double part = 0;    // cycles of the longest
  double all = 0;     // of all parts, over the places for them
  double waves = 0;   // of parts
  double joined = 0;  // bytes
  bool cut = false, even = false;
};

Share share_of(const TileChoice& one) {
  const auto& [kernel, load, splitting] = one;
  const TileShape& tile = kernel->tile;
  const int splits = splitting.split.splits;
  const bool in_cluster = splitting.split.in_cluster, in_memory = splits > 1 && !in_cluster, even = is_even(load);
  const auto tiles = static_cast<double>(load.tiles);
  const auto blocks = static_cast<double>(divide_up(std::max<std::int64_t>(load.longest, 1), splits));
  const double parts = in_memory && !even ? load.work / blocks + 0.5 * tiles : tiles * splits;
  const double together = splitting.resident > 1 ? std::max(splitting.most, kAlone) : 1.0;
  const double product =
      static_cast<double>(tile.rows() * tile.block() * tile.dim) * together / (tile.lane_rows == 2 ? kWideRate : kRate);
  const double block = load.products * std::max(kShortestProduct, product);
  const double bytes = 4 * load.result_floats * tile.rows();
  double once = kBegin;
  if (in_memory) once += bytes * splitting.most / kStoreRate;
  if (in_cluster) once += load.joins * kClusterJoin + bytes * splitting.most / kClusterRate;
  return {.part = blocks * block + once,
          .all = (load.work * block + parts * once) / splitting.capacity,
          .waves = parts / splitting.capacity,
          .joined = in_memory ? parts * bytes : 0,
          .cut = splits > 1,
          .even = even};
}

double cycles_of(const Share& keys, const Share& queries, double processors) {
  double cycles = std::max(keys.part, queries.part);
  if (keys.waves + queries.waves > 1) {
    const double last = kLastOfQueries * queries.part + kLastOfKeys * keys.part;
    cycles = std::max({keys.part, queries.part, keys.all + queries.all + last});
    if (keys.cut) cycles = std::max(cycles, std::ceil(keys.waves - (keys.even ? 0 : kRests)) * keys.part);
  }
  const double joined = keys.joined + queries.joined;
  return kStatistics + cycles + (joined > 0 ? kJoin + joined / (processors * kJoinRate) : 0);
}

}  // namespace

std::pair<TileChoice, TileChoice> choose_pair(const std::vector<TileChoice>& keys,
                                              const std::vector<TileChoice>& queries, int device) {
  const double processors = device_info(device).multiprocessors;
  std::vector<Share> of_queries;
  for (const TileChoice& one : queries) of_queries.push_back(share_of(one));
  std::size_t first = 0, second = 0;
  double least = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Share of_keys = share_of(keys[i]);
    for (std::size_t j = 0; j < queries.size(); ++j) {
      const bool alike = keys[i].kernel->tile.rows() == queries[j].kernel->tile.rows();
      const double cycles = cycles_of(of_keys, of_queries[j], processors) * (alike ? 1 : kUnlike);
      if ((i == 0 && j == 0) || cycles < least) first = i, second = j, least = cycles;
    }
  }
  return {keys[first], queries[second]};
}

}  // namespace fovea::cuda::any

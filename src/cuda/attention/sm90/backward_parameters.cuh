// Parameters of the sm_90 backward kernels, their tiles, and the order in which key tiles add to a query tile's dQ.
#pragma once

#include <cuda.h>

#include "cuda/device/mask.cuh"
#include "cuda/device/tensor_ref.h"

namespace fovea::cuda::sm90 {

constexpr int kKeys = 128;          // rows of a K/V tile
constexpr int kKeyWarpgroups = 2;   // each owns 64 of them
constexpr int kChunkBytes = 16384;  // dQ leaves in chunks of 64 x 64 floats
constexpr int kChunkFloats = kChunkBytes / 4;

// How the key tiles of one sequence run past its query tiles.
enum class Schedule : std::uint8_t {
  descending,  // the last key tile first, queries ascending; every key tile follows the one launched before it
  ring,        // key tile j starts at query tile j * query_tiles / key_tiles and wraps around
};

// The kernel's compile-time choices. Form 1, `ordered`: dQ is added in a fixed order, so its bits never change. Form 2,
// `silent`: dQ is not added at all, a yardstick. Form 4: three stages instead of two. Form 8: dV is
// issued before dS is computed. Form 16: dQ is not even stored to shared memory, a yardstick.
template <class Element_, int kDim_, int kForm>
struct BackwardTile {
  using Element = Element_;
  static constexpr int kDim = kDim_;
  static constexpr int kQueries = kDim == 64 ? 128 : 64;
  static constexpr bool kOrdered = kForm & 1, kSilent = kForm & 2, kEarlyDv = kForm & 8,
                        kDropped = kForm & 16;
  static constexpr int kStages = kForm & 4 ? 3 : 2;
  static constexpr int kPanels = kDim / 64;  // panels of 64 columns, 128 bytes a row
};

struct BackwardParameters {
  CUtensorMap q, dout, k, v, dk, dv;
  Shape shape;
  // [batch, heads_q, query_tiles * kQueries]: lse * log2(e), +inf where no key is visible or there is no query; delta.
  const float* lse = nullptr;
  const float* delta = nullptr;
  float* dq = nullptr;        // [batch, heads_q, query_tiles][kKeyWarpgroups][kChunkFloats], in the order of the accumulators
  unsigned* turns = nullptr;  // [batch, heads_q, query_tiles]: key tiles that have added so far
  int query_tiles = 0, key_tiles = 0;
  Schedule schedule = Schedule::descending;
  unsigned long long* watch = nullptr;
};

// The work of one thread block.
struct KeyTileWork {
  int key_tile, head_kv, batch;
  Range query_tiles;
  int first;  // the first query tile
  int steps;  // over all query heads of the group
  __device__ __forceinline__ int first_key() const { return key_tile * kKeys; }
};

template <int kQueries>
__device__ __forceinline__ KeyTileWork key_tile_work(const BackwardParameters& p) {
  const Shape& s = p.shape;
  KeyTileWork work;
  const int index = static_cast<int>(blockIdx.x) % p.key_tiles, sequence = static_cast<int>(blockIdx.x) / p.key_tiles;
  work.key_tile = p.schedule == Schedule::ring ? index : p.key_tiles - 1 - index;
  work.head_kv = sequence % s.heads_kv;
  work.batch = sequence / s.heads_kv;
  const int first_key = work.first_key(), last_key = min(first_key + kKeys, s.len_k) - 1;
  work.query_tiles = tiles_of(queries_of_any(s, first_key, last_key), kQueries);
  work.first = work.query_tiles.begin;
  if (p.schedule == Schedule::ring)
    work.first = static_cast<int>(static_cast<std::int64_t>(work.key_tile) * p.query_tiles / p.key_tiles);
  work.steps = (work.query_tiles.end - work.query_tiles.begin) * s.group;
  return work;
}

// Visits the query tiles of all query heads of the group in the order of the schedule.
struct QueryWalk {
  int tile, head;  // the query tile; the query head
  __device__ __forceinline__ QueryWalk(const KeyTileWork& work, const Shape& s)
      : tile(work.first), head(work.head_kv * s.group) {}
  __device__ __forceinline__ void advance(const KeyTileWork& work) {
    if (++tile == work.query_tiles.end) tile = work.query_tiles.begin;
    if (tile == work.first) ++head;
  }
  // The query tile's place among those of all sequences.
  __device__ __forceinline__ std::int64_t place(const BackwardParameters& p, const KeyTileWork& work) const {
    return (static_cast<std::int64_t>(work.batch) * p.shape.heads_q + head) * p.query_tiles + tile;
  }
};

// How many key tiles add to this query tile before `key_tile` does.
template <int kQueries>
__device__ __forceinline__ unsigned turn_of(const BackwardParameters& p, int key_tile, int query_tile) {
  if (p.schedule == Schedule::ring) {
    // The last key tile whose first query tile is not behind this one comes first, then those before it, cyclically.
    const int leader =
        static_cast<int>((static_cast<std::int64_t>(query_tile + 1) * p.key_tiles - 1) / p.query_tiles);
    const int turn = leader - key_tile;
    return static_cast<unsigned>(turn < 0 ? turn + p.key_tiles : turn);
  }
  const int first = query_tile * kQueries, last = min(first + kQueries, p.shape.len_q) - 1;
  const int last_key_tile = (keys_of_any(p.shape, first, last).end - 1) / kKeys;
  return static_cast<unsigned>(last_key_tile - key_tile);
}

}  // namespace fovea::cuda::sm90

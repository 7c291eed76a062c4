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
  ascending,  // the first key tile first, queries descending; every key tile follows those launched before it
  ring,       // key tile j starts at query tile j * query_tiles / key_tiles and wraps around
};

// The kernel's compile-time choices. Form 1, `ordered`: dQ is added in a fixed order, so its bits never change. Form 2,
// `silent`: dQ is not added at all, a yardstick. Form 4: three stages instead of two, one slot of dQ. Form 8: dV is
// issued before dS is computed. Form 16: the last key tile of a query tile rounds dQ. Form 32: one slot of dQ. Form 64:
// dQ is added from the registers.
template <class Element_, int kDim_, int kForm>
struct BackwardTile {
  using Element = Element_;
  static constexpr int kDim = kDim_;
  static constexpr int kQueries = kDim == 64 ? 128 : 64;
  static constexpr bool kOrdered = kForm & 1, kSilent = kForm & 2, kEarlyDv = kForm & 8,
                        kFinishes = kForm & 16, kDirect = kForm & 64;
  static constexpr int kDqSlots = kForm & 36 ? 1 : 2;
  static constexpr int kStages = kForm & 4 ? 3 : 2;
  static constexpr int kPanels = kDim / 64;  // panels of 64 columns, 128 bytes a row
};

struct BackwardParameters {
  CUtensorMap q, dout, k, v, dk, dv, dq_out;
  Shape shape;
  // [batch, heads_q, query_tiles * kQueries]: lse * log2(e), +inf where no key is visible or there is no query; delta.
  const float* lse = nullptr;
  const float* delta = nullptr;
  float* dq = nullptr;        // [batch, heads_q, query_tiles][kKeyWarpgroups][kChunkFloats], in the order of the accumulators
  unsigned* turns = nullptr;  // [batch, heads_q, query_tiles][kKeyWarpgroups]: key tiles that have added so far
  int query_tiles = 0, key_tiles = 0;
  Schedule schedule = Schedule::ascending;
  int section = 1;  // sequences whose key tiles are launched in turns: all first ones, then all second ones
  unsigned long long* watch = nullptr;
};

// The work of one thread block.
struct KeyTileWork {
  int key_tile, head_kv, batch;
  Range query_tiles;
  int first;        // the first query tile
  int steps;        // over all query heads of the group
  Range finishing;  // ring: the query tiles to which this key tile adds last
  __device__ __forceinline__ int first_key() const { return key_tile * kKeys; }
};

// Where a key tile starts in the ring.
__device__ __forceinline__ int ring_start(const BackwardParameters& p, int key_tile) {
  return static_cast<int>(static_cast<std::int64_t>(key_tile) * p.query_tiles / p.key_tiles);
}

template <int kQueries>
__device__ __forceinline__ KeyTileWork key_tile_work(const BackwardParameters& p) {
  const Shape& s = p.shape;
  KeyTileWork work;
  const int block = static_cast<int>(blockIdx.x), whole = p.section * p.key_tiles, section = block / whole,
            sequences = min(p.section, s.batch * s.heads_kv - section * p.section);
  const int sequence = section * p.section + block % whole % sequences;
  work.key_tile = block % whole / sequences;
  work.head_kv = sequence % s.heads_kv;
  work.batch = sequence / s.heads_kv;
  const int first_key = work.first_key(), last_key = min(first_key + kKeys, s.len_k) - 1;
  work.query_tiles = tiles_of(queries_of_any(s, first_key, last_key), kQueries);
  work.first = work.query_tiles.end - 1;
  if (p.schedule == Schedule::ring) {
    work.first = ring_start(p, work.key_tile);
    const int before = work.key_tile == 0 ? p.key_tiles - 1 : work.key_tile - 1;
    work.finishing = {ring_start(p, before), work.key_tile == 0 ? p.query_tiles : work.first};
  }
  work.steps = (work.query_tiles.end - work.query_tiles.begin) * s.group;
  return work;
}

// Visits the query tiles of all query heads of the group in the order of the schedule.
struct QueryWalk {
  int tile, head;  // the query tile; the query head
  __device__ __forceinline__ QueryWalk(const KeyTileWork& work, const Shape& s)
      : tile(work.first), head(work.head_kv * s.group) {}
  __device__ __forceinline__ void advance(const BackwardParameters& p, const KeyTileWork& work) {
    if (p.schedule == Schedule::ring) {
      if (++tile == work.query_tiles.end) tile = work.query_tiles.begin;
    } else {
      if (--tile < work.query_tiles.begin) tile = work.query_tiles.end - 1;
    }
    if (tile == work.first) ++head;
  }
  // The query tile's place among those of all sequences.
  __device__ __forceinline__ std::int64_t place(const BackwardParameters& p, const KeyTileWork& work) const {
    return (static_cast<std::int64_t>(work.batch) * p.shape.heads_q + head) * p.query_tiles + tile;
  }
};

// How many key tiles add to a query tile before this one does, and whether it is the last.
struct Turn {
  unsigned before;
  bool last;
};
template <int kQueries>
__device__ __forceinline__ Turn turn_of(const BackwardParameters& p, const KeyTileWork& work, int query_tile) {
  if (p.schedule == Schedule::ring) {
    // The last key tile that starts at or ahead of this query tile comes first, then those before it, cyclically.
    const unsigned key_tiles = static_cast<unsigned>(p.key_tiles);
    const unsigned leader = ((static_cast<unsigned>(query_tile) + 1) * key_tiles - 1) / static_cast<unsigned>(p.query_tiles);
    const unsigned key_tile = static_cast<unsigned>(work.key_tile);
    return {leader < key_tile ? leader + key_tiles - key_tile : leader - key_tile,
            query_tile >= work.finishing.begin && query_tile < work.finishing.end};
  }
  const int first = query_tile * kQueries, last = min(first + kQueries, p.shape.len_q) - 1;
  const Range keys = keys_of_any(p.shape, first, last);
  return {static_cast<unsigned>(work.key_tile - keys.begin / kKeys), (keys.end - 1) / kKeys == work.key_tile};
}

}  // namespace fovea::cuda::sm90

// The work of a thread block of backward: its key tile, and the query tiles that stream past it in a fixed order. With
// several splits, those of a part of the group's query heads.
#pragma once

#include "cuda/attention/sm90/backward_parameters.h"
#include "cuda/device/mask.cuh"

namespace fovea::cuda::sm90 {

struct KeyTileWork {
  int key_tile, split, head_kv, batch;
  int first_head;  // of the split's query heads
  Range query_tiles;
  int start_tile;                     // the query tile of the first step
  int steps;                          // over all query heads of the split
  Range adds_first_to, adds_last_to;  // ring: query tiles that this key tile adds to first, and last
  __device__ __forceinline__ int first_key() const { return key_tile * kKeys; }
};

// The query tile at which a key tile starts in the ring. For key_tile = key_tiles it is the end of the ring.
__device__ __forceinline__ int ring_start(const KeyTileOrder& order, int key_tile) {
  return static_cast<int>(static_cast<std::int64_t>(key_tile) * order.query_tiles / order.key_tiles);
}

// Thread blocks take the first key tiles of all sequences of a section, then all second ones. Under a causal mask the
// first key tiles have the most queries, so long work comes first.
template <int kQueries>
__device__ __forceinline__ KeyTileWork key_tile_work(const BackwardParameters& p) {
  const Shape& s = p.shape;
  const KeyTileOrder& order = p.order;
  const int block = static_cast<int>(blockIdx.x), section_blocks = order.section * order.key_tiles,
            section = block / section_blocks, sequences = min(order.section, order.sequences - section * order.section);
  const int within = block - section * section_blocks, sequence = section * order.section + within % sequences;
  KeyTileWork work;
  work.key_tile = within / sequences;
  work.split = sequence % order.splits;
  work.head_kv = sequence / order.splits % s.heads_kv;
  work.batch = sequence / order.splits / s.heads_kv;
  const int heads_before = work.split * order.heads;
  work.first_head = work.head_kv * s.group + heads_before;
  const int first_key = work.first_key(), last_key = min(first_key + kKeys, s.len_k) - 1;
  work.query_tiles = tiles_of(queries_of_any(s, first_key, last_key), kQueries);
  work.start_tile = work.query_tiles.end - 1;
  work.adds_first_to = work.adds_last_to = {0, 0};
  if (order.schedule == Schedule::ring) {
    const int before = work.key_tile == 0 ? order.key_tiles - 1 : work.key_tile - 1;
    work.adds_first_to = {ring_start(order, work.key_tile), ring_start(order, work.key_tile + 1)};
    work.adds_last_to = {ring_start(order, before), ring_start(order, before + 1)};
    work.start_tile = work.adds_first_to.begin;
  }
  work.steps = (work.query_tiles.end - work.query_tiles.begin) * min(order.heads, s.group - heads_before);
  return work;
}

// Visits the query tiles of all query heads of the split in the order of the schedule.
struct QueryWalk {
  int tile, head;  // the query tile; the query head
  __device__ __forceinline__ explicit QueryWalk(const KeyTileWork& work)
      : tile(work.start_tile), head(work.first_head) {}
  __device__ __forceinline__ void advance(const BackwardParameters& p, const KeyTileWork& work) {
    if (p.order.schedule == Schedule::ring) {
      if (++tile == work.query_tiles.end) tile = work.query_tiles.begin;
    } else {
      if (--tile < work.query_tiles.begin) tile = work.query_tiles.end - 1;
    }
    if (tile == work.start_tile) ++head;
  }
  // The query tile's index in [batch, heads_q, query_tiles].
  __device__ __forceinline__ std::int64_t index(const BackwardParameters& p, const KeyTileWork& work) const {
    return (static_cast<std::int64_t>(work.batch) * p.shape.heads_q + head) * p.order.query_tiles + tile;
  }
};

// Whether this key tile is the first to add to a query tile, and whether it is the last.
struct Turn {
  bool first, last;
};
template <int kQueries>
__device__ __forceinline__ Turn turn_of(const BackwardParameters& p, const KeyTileWork& work, int query_tile) {
  if (p.order.schedule == Schedule::ring)
    return {query_tile >= work.adds_first_to.begin && query_tile < work.adds_first_to.end,
            query_tile >= work.adds_last_to.begin && query_tile < work.adds_last_to.end};
  const int first = query_tile * kQueries, last = min(first + kQueries, p.shape.len_q) - 1;
  const Range keys = keys_of_any(p.shape, first, last);
  return {keys.begin / kKeys == work.key_tile, (keys.end - 1) / kKeys == work.key_tile};
}

// How many key tiles add to a query tile before this one does.
template <int kQueries>
__device__ __forceinline__ unsigned turns_before(const BackwardParameters& p, const KeyTileWork& work, int query_tile) {
  if (p.order.schedule == Schedule::ring) {
    // `leader` is the last key tile that starts at this query tile or at an earlier one. It adds first, then leader - 1
    // down to 0, then key_tiles - 1 down to leader + 1.
    const auto key_tiles = static_cast<unsigned>(p.order.key_tiles), key_tile = static_cast<unsigned>(work.key_tile);
    const unsigned leader =
        ((static_cast<unsigned>(query_tile) + 1) * key_tiles - 1) / static_cast<unsigned>(p.order.query_tiles);
    return leader < key_tile ? leader + key_tiles - key_tile : leader - key_tile;
  }
  // All key tiles from the first visible one to this one visit the query tile.
  return static_cast<unsigned>(work.key_tile - max(0, query_tile * kQueries + p.shape.window_begin) / kKeys);
}

}  // namespace fovea::cuda::sm90

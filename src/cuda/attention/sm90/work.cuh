// The work of a thread block: its query tiles in order, and the K/V tiles that each of them visits.
#pragma once

#include "cuda/attention/any/work_tile.cuh"
#include "cuda/attention/sm90/parameters.h"
#include "cuda/device/mask.cuh"

namespace fovea::cuda::sm90 {

// A query tile, or a split of it.
struct alignas(16) QueryTile {
  int batch, head, first_query, split;  // head: the first one of packed heads
  Range kv_tiles, unmasked;             // tiles in `unmasked` need no mask; it may be empty or reach beyond kv_tiles

  __device__ bool has_keys() const { return kv_tiles.begin < kv_tiles.end; }
};
constexpr int kNoTile = -1;  // as `batch`: no tile is left

// Work is numbered from 0 to order.numbers - 1. A thread block begins with number blockIdx.x; this is the number that
// it takes after `number`. At order.numbers or more nothing is left.
__device__ __forceinline__ int next_number(const TileOrder& order, int number) {
  const int ctas = static_cast<int>(gridDim.x);
  return order.counter == nullptr ? number + ctas : ctas + static_cast<int>(atomicAdd(order.counter, 1u));
}

// The tile of a number. Numbers count, from the fastest to the slowest: the splits of a tile, the sequences of a
// section, the query tiles of a sequence from the last to the first, the sections.
template <class Tile>
__device__ __forceinline__ QueryTile query_tile(const ForwardParameters& p, int number) {
  constexpr int kKeys = Tile::kTile.keys;
  const TileOrder& order = p.order;
  const int tile_number = static_cast<int>(quotient(static_cast<unsigned>(number), p.split.splits_divmod));
  const int section_numbers = order.section_sequences * order.q_tiles, section = tile_number / section_numbers;
  const int first = section * order.section_sequences;
  const int sequences = min(order.section_sequences, order.sequences - first);
  const int within = tile_number - section * section_numbers, from_last = within / sequences;
  const int sequence = first + within - from_last * sequences, heads_of_batch = p.shape.heads_q / p.packing.heads;
  QueryTile tile;
  tile.batch = sequence / heads_of_batch;
  tile.head = (sequence - tile.batch * heads_of_batch) * p.packing.heads;
  tile.first_query = (order.q_tiles - 1 - from_last) * p.packing.queries;
  tile.split = number - tile_number * p.split.splits;
  const int last = min(tile.first_query + p.packing.queries, p.shape.len_q) - 1;
  const Range kv_tiles = tiles_of(keys_of_any(p.shape, tile.first_query, last), kKeys);
  tile.kv_tiles = any::split_range(kv_tiles, p.split, tile.split);
  const Range all = keys_of_all(p.shape, tile.first_query, last);
  tile.unmasked = {(all.begin + kKeys - 1) / kKeys, all.end / kKeys};
  return tile;
}

}  // namespace fovea::cuda::sm90

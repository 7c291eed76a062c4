// The work of a thread block: its query tiles in order, and the K/V tiles that each of them visits.
#pragma once

#include "cuda/attention/sm90/parameters.h"
#include "cuda/device/mask.cuh"

namespace fovea::cuda::sm90 {

struct QueryTile {
  int batch, head, first_row;
  Range kv_tiles, unmasked;  // the tiles in `unmasked` need no mask
};

// The number in the order of tiles that this thread block takes in a round; order.numbers or more: none is left.
__device__ __forceinline__ int next_number(const TileOrder& order, int round) {
  const int cta = static_cast<int>(blockIdx.x), ctas = static_cast<int>(gridDim.x);
  if (order.counter != nullptr) return round == 0 ? cta : ctas + static_cast<int>(atomicAdd(order.counter, 1u));
  return round * ctas + cta;
}

// The tile of a number.
template <class Tile>
__device__ __forceinline__ QueryTile query_tile(const ForwardParameters& p, int number) {
  constexpr int kRows = Tile::kTile.rows(), kKeys = Tile::kTile.keys;
  const TileOrder& order = p.order;
  const int section_numbers = order.section_heads * order.q_tiles, section = number / section_numbers;
  const int first = section * order.section_heads, heads = min(order.section_heads, order.sequences - first);
  const int within = number - section * section_numbers, place = within / heads;
  const int sequence = first + within - place * heads;
  QueryTile tile;
  tile.batch = sequence / p.shape.heads_q;
  tile.head = sequence - tile.batch * p.shape.heads_q;
  tile.first_row = (order.q_tiles - 1 - place) * kRows;
  const int last = min(tile.first_row + kRows, p.shape.len_q) - 1;
  tile.kv_tiles = tiles_of(keys_of_any(p.shape, tile.first_row, last), kKeys);
  const Range all = keys_of_all(p.shape, tile.first_row, last);
  tile.unmasked = {(all.begin + kKeys - 1) / kKeys, all.end / kKeys};
  return tile;
}

}  // namespace fovea::cuda::sm90

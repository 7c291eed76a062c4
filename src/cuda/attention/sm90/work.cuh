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
  return order.paired ? 2 * (round / 2 * ctas + cta) + round % 2 : round * ctas + cta;
}

// The tile of a number; without K/V tiles and with first_row = -1 if the number has none.
template <class Tile>
__device__ __forceinline__ QueryTile query_tile(const ForwardParameters& p, int number) {
  constexpr int kRows = Tile::kTile.rows(), kKeys = Tile::kTile.keys;
  const TileOrder& order = p.order;
  const int per_sequence = order.paired ? (order.q_tiles + 1) / 2 * 2 : order.q_tiles;
  const int section_numbers = order.section_heads * per_sequence, section = number / section_numbers;
  const int first = section * order.section_heads, heads = min(order.section_heads, order.sequences - first);
  const int within = number - section * section_numbers, place = within / heads;
  const int sequence = first + within - place * heads;
  int row_tile = order.q_tiles - 1 - place;
  if (order.paired) {
    const int from_end = place % 2 == 0 ? place / 2 : order.q_tiles - 1 - place / 2;
    row_tile = place % 2 == 1 && place / 2 == from_end ? -1 : order.q_tiles - 1 - from_end;
  }
  QueryTile tile{
      .batch = sequence / p.shape.heads_q, .head = 0, .first_row = -1, .kv_tiles = {0, 0}, .unmasked = {0, 0}};
  tile.head = sequence - tile.batch * p.shape.heads_q;
  if (row_tile < 0) return tile;
  tile.first_row = row_tile * kRows;
  const int last = min(tile.first_row + kRows, p.shape.len_q) - 1;
  tile.kv_tiles = tiles_of(keys_of_any(p.shape, tile.first_row, last), kKeys);
  const Range all = keys_of_all(p.shape, tile.first_row, last);
  tile.unmasked = {(all.begin + kKeys - 1) / kKeys, all.end / kKeys};
  return tile;
}

}  // namespace fovea::cuda::sm90

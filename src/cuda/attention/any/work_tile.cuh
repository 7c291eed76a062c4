// The tile and the split of a thread block, and how many splits of a tile have work. Partials of splits without work
// are neither written nor read.
#pragma once

#include "cuda/attention/any/parameters.h"
#include "cuda/device/mask.cuh"
#include "cuda/device/tile_shape.h"

namespace fovea::cuda::any {

// `index` counts in the order of work. K/V tiles run from the first row to the last, Q tiles from the last to the
// first.
struct WorkTile {
  int batch, head, index, split;
};

__device__ __forceinline__ WorkTile work_tile_of(unsigned cta, const Split& split, const Grid& grid) {
  const unsigned tile = quotient(cta, split.splits_divmod), round = quotient(tile, grid.round_divmod);
  const unsigned chunk = static_cast<unsigned>(grid.chunk), in_round = tile - round * grid.round;
  const unsigned sequence = quotient(in_round, grid.chunk_divmod), batch = quotient(sequence, grid.heads_divmod);
  return {.batch = static_cast<int>(batch),
          .head = static_cast<int>(sequence - batch * static_cast<unsigned>(grid.heads)),
          .index = static_cast<int>(round * chunk + in_round - sequence * chunk),
          .split = static_cast<int>(cta - tile * static_cast<unsigned>(split.splits))};
}

__device__ __forceinline__ int key_head(int query_head, const Grid& grid) {
  return static_cast<int>(quotient(static_cast<unsigned>(query_head), grid.group_divmod));
}

// How many splits of a tile have work, if the tile visits `tiles` streamed tiles.
__device__ __forceinline__ int splits_with_work(int tiles, const Split& split) {
  return min(split.splits, (tiles + split.tiles_per_split - 1) / split.tiles_per_split);
}

// The part of `tiles`, the streamed tiles that a tile visits, that split `index` takes.
__device__ __forceinline__ Range split_range(Range tiles, const Split& split, int index) {
  if (split.splits == 1) return tiles;
  if (split.in_cluster) {
    const auto bound = [&](int splits_before) {
      const auto all = static_cast<unsigned>((tiles.end - tiles.begin) * splits_before);
      return tiles.begin + static_cast<int>(quotient(all, split.splits_divmod));
    };
    return {bound(index), bound(index + 1)};
  }
  const int begin = tiles.begin + index * split.tiles_per_split;
  return {begin, min(tiles.end, begin + split.tiles_per_split)};
}

// The work of a thread block that holds a Q tile: the tile from row `first_row` on, and the K/V tiles of its split.
// Those in `unmasked` need no mask.
struct QTileWork {
  WorkTile tile;
  int first_row;
  Range kv_tiles, unmasked;
};

template <class Tile, class Parameters>
__device__ __forceinline__ QTileWork q_tile_work(const Parameters& p, unsigned cta) {
  constexpr int kRows = Tile::kShape.rows(), kKeys = Tile::kShape.streamed_rows();
  const Shape& s = p.shape;
  QTileWork work{.tile = work_tile_of(cta, p.split, p.grid)};
  work.first_row = (p.grid.tiles - 1 - work.tile.index) * kRows;  // the longest rows of a causal mask come first
  const int last = min(work.first_row + kRows, s.len_q) - 1;
  work.kv_tiles = split_range(tiles_of(keys_of_any(s, work.first_row, last), kKeys), p.split, work.tile.split);
  const Range all = keys_of_all(s, work.first_row, last);
  work.unmasked = {(all.begin + kKeys - 1) / kKeys, all.end / kKeys};
  return work;
}

// How many splits of the Q tile that holds `query` have work.
__device__ __forceinline__ int splits_of_query(const Shape& s, const Split& split, int query) {
  const int first = query / split.rows * split.rows;
  const Range tiles = tiles_of(keys_of_any(s, first, min(first + split.rows, s.len_q) - 1), split.streamed_rows);
  return splits_with_work(tiles.end - tiles.begin, split);
}

// How many splits of the K/V tile that holds `key` have work.
__device__ __forceinline__ int splits_of_key(const Shape& s, const Split& split, int key) {
  const int first = key / split.rows * split.rows;
  const Range tiles = tiles_of(queries_of_any(s, first, min(first + split.rows, s.len_k) - 1), split.streamed_rows);
  return splits_with_work((tiles.end - tiles.begin) * s.group, split);
}

}  // namespace fovea::cuda::any

// The tile and the split that a thread block works on, and how many splits of a tile have work. Splits without work are
// neither written nor read.
#pragma once

#include "cuda/attention/any/parameters.h"
#include "cuda/device/mask.cuh"

namespace fovea::cuda::any {

// Tile `index` along the stationary operand's rows.
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

// Of a tile that visits `tiles` streamed tiles.
__device__ __forceinline__ int splits_with_work(int tiles, const Split& split) {
  return min(split.splits, (tiles + split.tiles_per_split - 1) / split.tiles_per_split);
}

// The streamed tiles that split `index` takes of all that the tile visits.
__device__ __forceinline__ Range split_range(Range tiles, const Split& split, int index) {
  if (split.splits == 1) return tiles;
  if (split.in_cluster) {
    const auto bound = [&](int splits) {
      const auto all = static_cast<unsigned>((tiles.end - tiles.begin) * splits);
      return tiles.begin + static_cast<int>(quotient(all, split.splits_divmod));
    };
    return {bound(index), bound(index + 1)};
  }
  const int begin = tiles.begin + index * split.tiles_per_split;
  return {begin, min(tiles.end, begin + split.tiles_per_split)};
}

// Of the Q tile that holds `query`.
__device__ __forceinline__ int splits_of_query(const Shape& s, const Split& split, int query) {
  const int first = query / split.rows * split.rows;
  const Range tiles = tiles_of(keys_of_any(s, first, min(first + split.rows, s.len_q) - 1), split.streamed_rows);
  return splits_with_work(tiles.end - tiles.begin, split);
}

// Of the K/V tile that holds `key`.
__device__ __forceinline__ int splits_of_key(const Shape& s, const Split& split, int key) {
  const int first = key / split.rows * split.rows;
  const Range tiles = tiles_of(queries_of_any(s, first, min(first + split.rows, s.len_k) - 1), split.streamed_rows);
  return splits_with_work((tiles.end - tiles.begin) * s.group, split);
}

}  // namespace fovea::cuda::any

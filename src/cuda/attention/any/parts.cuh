// Which part of which tile a block of threads works on, and how many parts of a split have work: the others neither
// write nor are read.
#pragma once

#include "cuda/attention/any/parameters.h"
#include "cuda/device/mask.cuh"

namespace fovea::cuda::any {

struct Place {
  int batch, head, tile, part;
};

__device__ __forceinline__ Place place_of(unsigned block, const Split& split, const Grid& grid) {
  const unsigned index = quotient(block, split.by_splits), turn = quotient(index, grid.by_turn);
  const unsigned together = static_cast<unsigned>(grid.together), in_turn = index - turn * grid.turn;
  const unsigned sequence = quotient(in_turn, grid.by_together), batch = quotient(sequence, grid.by_heads);
  return {.batch = static_cast<int>(batch),
          .head = static_cast<int>(sequence - batch * static_cast<unsigned>(grid.heads)),
          .tile = static_cast<int>(turn * together + in_turn - sequence * together),
          .part = static_cast<int>(block - index * static_cast<unsigned>(split.splits))};
}

__device__ __forceinline__ int key_head(int query_head, const Grid& grid) {
  return static_cast<int>(quotient(static_cast<unsigned>(query_head), grid.by_group));
}

__device__ __forceinline__ int parts_of(int blocks, const Split& split) {
  return min(split.splits, (blocks + split.blocks_per_split - 1) / split.blocks_per_split);
}

// Of the blocks that a tile visits, those of one part.
__device__ __forceinline__ Range part_of(Range blocks, const Split& split, int part) {
  if (split.splits == 1) return blocks;
  if (split.in_cluster) {
    const auto share = [&](int parts) {
      const auto all = static_cast<unsigned>((blocks.end - blocks.begin) * parts);
      return blocks.begin + static_cast<int>(quotient(all, split.by_splits));
    };
    return {share(part), share(part + 1)};
  }
  const int begin = blocks.begin + part * split.blocks_per_split;
  return {begin, min(blocks.end, begin + split.blocks_per_split)};
}

// Of the tile of queries that holds `query`.
__device__ __forceinline__ int parts_of_query(const Shape& s, const Split& split, int query) {
  const int first = query / split.rows * split.rows;
  const Range blocks = blocks_of(keys_of_any(s, first, min(first + split.rows, s.len_q) - 1), split.block);
  return parts_of(blocks.end - blocks.begin, split);
}

// Of the tile of keys that holds `key`.
__device__ __forceinline__ int parts_of_key(const Shape& s, const Split& split, int key) {
  const int first = key / split.rows * split.rows;
  const Range blocks = blocks_of(queries_of_any(s, first, min(first + split.rows, s.len_k) - 1), split.block);
  return parts_of((blocks.end - blocks.begin) * s.group, split);
}

}  // namespace fovea::cuda::any

// How many parts of a split have work: the others neither write nor are read.
#pragma once

#include "cuda/any/parameters.h"
#include "cuda/device/mask.cuh"

namespace fovea::cuda::any {

__device__ __forceinline__ int parts_of(int blocks, const Split& split) {
  return min(split.splits, (blocks + split.blocks_per_split - 1) / split.blocks_per_split);
}

// Of the blocks that a tile visits, those of one part.
__device__ __forceinline__ Range part_of(Range blocks, const Split& split, int part) {
  if (split.in_cluster) {
    const int count = blocks.end - blocks.begin;
    return {blocks.begin + count * part / split.splits, blocks.begin + count * (part + 1) / split.splits};
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

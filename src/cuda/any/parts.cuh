// How many parts of a split have work: the others neither write nor are read.
#pragma once

#include "cuda/any/parameters.h"
#include "cuda/device/mask.cuh"

namespace fovea::cuda::any {

__device__ __forceinline__ int parts_of(int blocks, const Split& split) {
  return min(split.splits, (blocks + split.blocks_per_split - 1) / split.blocks_per_split);
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

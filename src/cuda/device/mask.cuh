// Masks as intervals of visible keys. Tiles wholly inside need no mask; tiles wholly outside are never visited.
#pragma once

#include "cuda/device/tensor_ref.h"

namespace fovea::cuda {

struct Range {
  int begin, end;
};

__device__ __forceinline__ Range visible_keys(const Shape& s, int query) {
  return {max(0, query + s.window_begin), min(s.len_k, query + s.window_end)};
}

// Keys that at least one of the queries [first, last] sees.
__device__ __forceinline__ Range keys_of_any(const Shape& s, int first, int last) {
  return {max(0, first + s.window_begin), min(s.len_k, last + s.window_end)};
}

// Keys that all of the queries [first, last] see.
__device__ __forceinline__ Range keys_of_all(const Shape& s, int first, int last) {
  return {max(0, last + s.window_begin), min(s.len_k, first + s.window_end)};
}

// Queries that see at least one of the keys [first, last].
__device__ __forceinline__ Range queries_of_any(const Shape& s, int first, int last) {
  return {max(0, first - s.window_end + 1), min(s.len_q, last - s.window_begin + 1)};
}

// Queries that see all of the keys [first, last].
__device__ __forceinline__ Range queries_of_all(const Shape& s, int first, int last) {
  return {max(0, last - s.window_end + 1), min(s.len_q, first - s.window_begin + 1)};
}

// The tiles [begin, end) of `size` rows that a range touches.
__device__ __forceinline__ Range tiles_of(Range range, int size) {
  if (range.end <= range.begin) return {0, 0};
  return {range.begin / size, (range.end + size - 1) / size};
}

}  // namespace fovea::cuda

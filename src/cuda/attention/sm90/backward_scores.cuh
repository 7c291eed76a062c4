// P^T and dS^T of one query tile in the registers of a key warpgroup. Rows are keys, columns are queries.
#pragma once

#include "cuda/attention/sm90/parameters.h"
#include "cuda/device/mask.cuh"
#include "cuda/ptx/arithmetic.cuh"

namespace fovea::cuda::sm90 {

// Where a thread's accumulator elements lie: in rows `row` and `row` + 8 of the K/V tile, and in columns
// 8 block + `column` and the next one of the query tile.
struct KeyFragment {
  int warpgroup, row, column;
  // Where stmatrix_x4 writes: the offset of the lane's row, and of its 16 bytes in the row, swizzled by row % 8. XOR
  // with 32 i moves 16 i columns further under the swizzle.
  std::uint32_t store_row, store_column;
  __device__ __forceinline__ explicit KeyFragment(int warpgroup_) : warpgroup(warpgroup_) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % kWarpgroup / 32;
    row = warpgroup * kWarpgroupRows + warp * 16 + lane / 4;
    column = lane % 4 * 2;
    store_row = static_cast<std::uint32_t>(warpgroup * kWarpgroupRows + warp * 16 + lane / 8 % 2 * 8 + lane % 8) * 128;
    store_column = static_cast<std::uint32_t>((lane / 16) ^ (lane % 8)) * 16;
  }
  // Columns [16 i, 16 i + 16) of the warp's 16 rows, in panels of 64 columns and `rows` rows.
  __device__ __forceinline__ std::uint32_t store_offset(int i, int rows) const {
    return i / 4 * (rows * 128) + store_row + (store_column ^ (i % 4 * 32));
  }
};

// Whether the query of block `block`, column `e` sees the fragment's key row + 8 r: the key exists, and
// 0 <= key - query - window_begin < width.
struct FragmentMask {
  int first;       // key - query - window_begin of the fragment's first key and first query
  unsigned width;  // of the mask's window; unsigned, so that one comparison tests both ends
  int keys;        // keys that exist from the fragment's row on
  __device__ __forceinline__ FragmentMask(const Shape& s, const KeyFragment& f, int first_key, int first_query)
      : first(first_key + f.row - first_query - f.column - s.window_begin),
        width(static_cast<unsigned>(s.window_end - s.window_begin)),
        keys(s.len_k - first_key - f.row) {}
  __device__ __forceinline__ bool visible(int block, int e, int r) const {
    return static_cast<unsigned>(first + 8 * r - 8 * block - e) < width && 8 * r < keys;
  }
};

// scores = P^T, in place of K Q^T. `lse` is lse * log2(e) of the tile's queries.
template <bool kMasked, int kCount>
__device__ __forceinline__ void probabilities(float (&scores)[kCount], const float* lse, float scale_log2e,
                                              const KeyFragment& f, const FragmentMask& mask) {
#pragma unroll
  for (int block = 0; block < kCount / 4; ++block) {
    const float2 row_lse = *reinterpret_cast<const float2*>(lse + 8 * block + f.column);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& p = scores[4 * block + i];
      p = ptx::exp2_approx(fmaf(p, scale_log2e, i % 2 == 0 ? -row_lse.x : -row_lse.y));
      if (kMasked && !mask.visible(block, i % 2, i / 2)) p = 0.0f;
    }
  }
}

// dp = dS^T = P^T (dP^T - delta), in place of dP^T. Of a partly masked tile, dS is 0 where P is 0, even if dP is NaN.
template <bool kMasked, int kCount>
__device__ __forceinline__ void score_gradients(const float (&p)[kCount], float (&dp)[kCount], const float* delta,
                                                const KeyFragment& f) {
#pragma unroll
  for (int block = 0; block < kCount / 4; ++block) {
    const float2 row_delta = *reinterpret_cast<const float2*>(delta + 8 * block + f.column);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = 4 * block + i;
      dp[at] = p[at] * (dp[at] - (i % 2 == 0 ? row_delta.x : row_delta.y));
      if (kMasked && p[at] == 0.0f) dp[at] = 0.0f;
    }
  }
}

}  // namespace fovea::cuda::sm90

// The forward kernel's epilogue: divides by the sum, and stores out and lse, or the partials of a split. Results in 16
// bits go through shared memory to TMA, if the tile has room for it.
#pragma once

#include <cstddef>
#include <type_traits>

#include "cuda/attention/sm90/shared.cuh"
#include "cuda/attention/sm90/softmax.cuh"
#include "cuda/attention/sm90/store_row.cuh"
#include "cuda/attention/sm90/work.cuh"
#include "cuda/device/sequence.cuh"
#include "cuda/device/store.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/warpgroup.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace fovea::cuda::sm90 {

// What the accumulators of a thread's two rows are multiplied by in the end.
struct RowScale {
  float factor[2];
};

// Where the rows of a thread are: `row` and `row` + 8 of the tile.
struct ThreadRows {
  int query[2], head[2];
  bool valid[2];
};

__device__ __forceinline__ ThreadRows rows_of_thread(const ForwardParameters& p, const QueryTile& tile, int row) {
  // Hidden from the compiler, so that nothing made from it is kept in registers through the main loop.
  asm volatile("" : "+r"(row));
  ThreadRows rows;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int at = row + 8 * i;
    const int position = static_cast<int>(quotient(static_cast<unsigned>(at), p.packing.heads_divmod));
    rows.query[i] = tile.first_query + position;
    rows.head[i] = tile.head + at - position * p.packing.heads;
    rows.valid[i] = position < p.packing.queries && rows.query[i] < p.shape.len_q;
  }
  return rows;
}

// Adds up a row's sum over its four lanes, stores lse or the state of a split, and returns the scale of the results.
// `largest` is the exponential of the maximum: not exactly 1, since the exponents' offset is rounded (softmax.cuh). P V
// uses it rounded to Element. The divisor raw + rounding counts it as P V does, so that a single key has weight 1. lse
// and states are relative to the maximum itself: `sum` is raw / largest. The combine divides a split by its `sum`,
// hence the factor sum / (raw + rounding). `states`: where a split in a cluster puts the state of the thread's first
// row; nullptr where no split is in a cluster, which compiles no code for clusters.
template <class Element, class States>
__device__ __forceinline__ RowScale finish_rows(const ForwardParameters& p, const QueryTile& tile, const ThreadRows& at,
                                                const Rows2& rows, States states) {
  const Shape& s = p.shape;
  const bool stores = threadIdx.x % 4 == 0;
  RowScale scale;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float maximum = rows.maximum[i], raw = lanes_sum<4>(rows.sum[i]);
    const float largest =
        ptx::exp2_approx(fmaf(finite_max(maximum), s.scale_log2e, -offset_of(maximum, s.scale_log2e)));
    const float sum = raw / largest, rounding = static_cast<float>(static_cast<Element>(largest)) - largest;
    const float inverse = 1.0f / (raw + rounding);
    if (p.split.splits > 1) {
      scale.factor[i] = raw == 0.0f ? 0.0f : sum * inverse;
      if constexpr (!std::is_same_v<States, std::nullptr_t>) {
        if (p.split.in_cluster) {
          if (stores) states[8 * i] = {maximum, sum};
          continue;
        }
      }
      const std::int64_t sequence = (std::int64_t{tile.split} * s.batch + tile.batch) * s.heads_q + at.head[i];
      if (stores && at.valid[i]) p.partial_state[sequence * s.len_q + at.query[i]] = {maximum, sum};
      continue;
    }
    const FinalRow final = finalize_row(maximum, sum, s, at.query[i]);
    scale.factor[i] = raw == 0.0f ? final.inverse_sum : inverse;
    if (stores && at.valid[i] && p.lse.data != nullptr)
      static_cast<float*>(p.lse.data)[row_offset(p.lse, tile.batch, at.head[i], at.query[i])] = final.lse;
  }
  return scale;
}

// Stores the results of the thread's rows from registers.
template <class Element, int kCount>
__device__ __forceinline__ void write_rows(const ForwardParameters& p, const QueryTile& tile, const ThreadRows& at,
                                           const float (&out)[kCount], const RowScale& scale) {
  const Shape& s = p.shape;
  const bool whole = p.out.kind != ElementKind::fp32 && p.out.aligned && s.dim_v % 8 == 0;
  // Computed here, not once per kernel: the main loop has no registers for it. The volatile asm keeps it here.
  int dim = s.dim_v, lane = static_cast<int>(threadIdx.x % 4);
  asm volatile("" : "+r"(dim), "+r"(lane));
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::int64_t offset = row_offset(p.out, tile.batch, at.head[i], at.query[i]) + tile.split * p.split_stride;
    if (whole)
      store_row_16bit<Element>(p.out, offset, out, i, scale.factor[i], dim, lane, at.valid[i]);
    else if (at.valid[i])
      store_row_pairs<Element>(p.out, offset, out, i, scale.factor[i], dim, lane, false);
  }
}

// Stores the rows of a warp, the first of which is `query`, by TMA. `staged`: the warp's part of ForwardShared::out.
// First it waits until TMA has read the warp's former tile from there. TMA drops rows behind the last query.
template <class Element, int kCount>
__device__ __forceinline__ void store_by_tma(const ForwardParameters& p, const QueryTile& tile, int query,
                                             std::uint32_t staged, const float (&out)[kCount], const RowScale& scale) {
  constexpr int kPanelBytes = kWarpRows * 128;
  ptx::bulk_wait_read<0>();  // only the lane that issued the store has one to wait for;
  __syncwarp();              // the others wait for that lane
  const int lane = static_cast<int>(threadIdx.x % 32), row = lane % kWarpRows;
#pragma unroll
  for (int i = 0; i < kCount / 8; ++i) {
    std::uint32_t words[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float* pair = out + 8 * i + 2 * j;
      words[j] = ptx::pack<Element>(pair[0] * scale.factor[j % 2], pair[1] * scale.factor[j % 2]);
    }
    const int chunk = 2 * (i % 4) + lane / kWarpRows;  // of 16 bytes; the swizzle moves it
    ptx::stmatrix_x4(staged + i / 4 * kPanelBytes + row * 128 + (chunk ^ row % 8) * 16, words);
  }
  ptx::fence_proxy_async();
  __syncwarp();
  if (ptx::elect_one()) {
#pragma unroll
    for (int panel = 0; panel < kCount / 32; ++panel)
      ptx::tma_store_4d(&p.out_map, staged + panel * kPanelBytes, panel * kPanelColumns, query, tile.head, tile.batch);
    ptx::bulk_commit();
  }
  __syncwarp();
}

// Rows that see no key: zeros, and lse = -inf. A split writes nothing for them.
template <class Element>
__device__ __forceinline__ void write_empty_rows(const ForwardParameters& p, const QueryTile& tile,
                                                 const ThreadRows& at) {
  if (p.split.splits > 1) return;
  const float zeros[2] = {0.0f, 0.0f};
  const int lane = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (!at.valid[i]) continue;
    const std::int64_t offset = row_offset(p.out, tile.batch, at.head[i], at.query[i]);
#pragma unroll 1
    for (int column = 2 * lane; column < p.shape.dim_v; column += 8)
      store<Element, 2>(p.out, offset, column, p.shape.dim_v, false, zeros);
    if (p.lse.data != nullptr && lane == 0)
      static_cast<float*>(p.lse.data)[row_offset(p.lse, tile.batch, at.head[i], at.query[i])] = -kInfinity;
  }
}

}  // namespace fovea::cuda::sm90

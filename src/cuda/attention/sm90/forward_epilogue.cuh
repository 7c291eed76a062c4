// The forward kernel's epilogue: divides by the sum, and stores out and lse straight from registers.
#pragma once

#include "cuda/attention/sm90/softmax.cuh"
#include "cuda/attention/sm90/store_row.cuh"
#include "cuda/attention/sm90/work.cuh"
#include "cuda/device/sequence.cuh"
#include "cuda/device/store.cuh"

namespace fovea::cuda::sm90 {

// What the accumulators of a thread's two rows are multiplied by in the end.
struct RowScale {
  float factor[2];
};

// Adds up the rows' sums, stores lse, and gives the scale of the results. `query`: the thread's first row. The largest
// exponential of a row is 1 only up to the rounding of its exponent, and P V multiplies it rounded to Element. So the
// divisor counts it as rounded: a single key has weight 1. lse is relative to the maximum itself.
template <class Element>
__device__ __forceinline__ RowScale finish_rows(const ForwardParameters& p, const QueryTile& tile, int query,
                                                const Rows2& rows) {
  RowScale scale;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const int at = query + 8 * row;
    const float maximum = rows.maximum[row], sum = lanes_sum<4>(rows.sum[row]), factor = p.shape.scale_log2e;
    const float largest = ptx::exp2_approx(fmaf(finite_max(maximum), factor, -offset_of(maximum, factor)));
    const FinalRow final = finalize_row(maximum, sum / largest, p.shape, at);
    const float rounding = static_cast<float>(static_cast<Element>(largest)) - largest;
    scale.factor[row] = sum == 0.0f ? final.inverse_sum : 1.0f / (sum + rounding);
    if (at < p.shape.len_q && p.lse.data != nullptr && threadIdx.x % 4 == 0) {
      static_cast<float*>(p.lse.data)[row_offset(p.lse, tile.batch, tile.head, at)] = final.lse;
    }
  }
  return scale;
}

// Stores the results of the thread's rows `query` and `query` + 8.
template <class Element, int kCount>
__device__ __forceinline__ void write_rows(const ForwardParameters& p, const QueryTile& tile, int query,
                                           const float (&out)[kCount], const RowScale& scale) {
  const Shape& s = p.shape;
  const bool whole = p.out.kind != ElementKind::fp32 && p.out.aligned && s.dim_v % 8 == 0;
  // Computed here, not once per kernel: the main loop has no registers for it. The volatile asm keeps it here.
  int dim = s.dim_v, lane = static_cast<int>(threadIdx.x % 4);
  asm volatile("" : "+r"(dim), "+r"(lane));
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const int at = query + 8 * row;
    const bool valid = at < s.len_q;
    const std::int64_t offset = row_offset(p.out, tile.batch, tile.head, at);
    if (whole)
      store_row_16bit<Element>(p.out, offset, out, row, scale.factor[row], dim, lane, valid);
    else if (valid)
      store_row_pairs<Element>(p.out, offset, out, row, scale.factor[row], dim, lane, false);
  }
}

// Rows that see no key: zeros, and lse = -inf.
template <class Element>
__device__ __forceinline__ void write_empty_rows(const ForwardParameters& p, const QueryTile& tile, int query) {
  const float zeros[2] = {0.0f, 0.0f};
  const int lane = static_cast<int>(threadIdx.x % 4);
#pragma unroll 1
  for (int at = query; at < min(query + 9, p.shape.len_q); at += 8) {
    const std::int64_t offset = row_offset(p.out, tile.batch, tile.head, at);
#pragma unroll 1
    for (int column = 2 * lane; column < p.shape.dim_v; column += 8)
      store<Element, 2>(p.out, offset, column, p.shape.dim_v, false, zeros);
    if (p.lse.data != nullptr && lane == 0)
      static_cast<float*>(p.lse.data)[row_offset(p.lse, tile.batch, tile.head, at)] = -kInfinity;
  }
}

}  // namespace fovea::cuda::sm90

// Online softmax on wgmma accumulators: a thread holds columns of two rows, `row` and `row` + 8. c[i] belongs to the
// second row if i / 2 is odd.
#pragma once

#include "cuda/attention/sm90/parameters.h"
#include "cuda/device/mask.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/arithmetic.cuh"

namespace fovea::cuda::sm90 {

__device__ __forceinline__ constexpr int row_of(int i) { return i / 2 % 2; }

// The state of two rows.
struct Rows2 {
  float maximum[2] = {-kInfinity, -kInfinity};  // of the scores, not scaled
  float sum[2] = {0.0f, 0.0f};                  // of this thread's columns
  float factor[2] = {1.0f, 1.0f};               // by which the next rescale() multiplies O
};

// Keys that the mask hides become -inf. `queries`: of the thread's rows. `key`: its first column.
template <int kCount>
__device__ __forceinline__ void apply_mask(float (&scores)[kCount], const Shape& s, const int (&queries)[2], int key) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const Range visible = visible_keys(s, queries[row]);
    const int begin = visible.begin - key, end = visible.end - key;
#pragma unroll
    for (int i = 2 * row; i < kCount; i += 4) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int column = i / 4 * 8 + n;
        if (column < begin || column >= end) scores[i + n] = -kInfinity;
      }
    }
  }
}

// What is subtracted from exponents: the maximum times `scale`, rounded here, so that all uses agree. In this file
// `scale` is the problem's scale times log2(e).
__device__ __forceinline__ float offset_of(float maximum, float scale) { return __fmul_rn(finite_max(maximum), scale); }

// Updates the maximum, and rescales the sum. rescale() applies `factor` to O later.
template <int kCount>
__device__ __forceinline__ void update_maximum(const float (&scores)[kCount], Rows2& rows, float scale) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float even = scores[2 * row], odd = scores[2 * row + 1];  // two chains: half the latency
#pragma unroll
    for (int i = 4 + 2 * row; i < kCount; i += 4) even = fmaxf(even, scores[i]), odd = fmaxf(odd, scores[i + 1]);
    const float before = rows.maximum[row];
    rows.maximum[row] = fmaxf(before, lanes_max<4>(fmaxf(even, odd)));
    // Both products are rounded alike, so the factor is exactly 1 if the maximum stays. With an FMA the roundings of
    // all K/V tiles would add up in lse.
    rows.factor[row] = ptx::exp2_approx(__fmul_rn(before, scale) - offset_of(rows.maximum[row], scale));
    rows.sum[row] *= rows.factor[row];
  }
}

// Scores become exponentials relative to the maximum.
template <int kCount>
__device__ __forceinline__ void exponentiate(float (&scores)[kCount], Rows2& rows, float scale) {
  const float offset[2] = {offset_of(rows.maximum[0], scale), offset_of(rows.maximum[1], scale)};
  float second[2] = {0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int row = row_of(i);
    scores[i] = ptx::exp2_approx(fmaf(scores[i], scale, -offset[row]));
    (i % 2 == 0 ? rows.sum[row] : second[row]) += scores[i];
  }
  rows.sum[0] += second[0], rows.sum[1] += second[1];
}

template <int kCount>
__device__ __forceinline__ void rescale(float (&out)[kCount], const Rows2& rows) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) out[i] *= rows.factor[row_of(i)];
}

}  // namespace fovea::cuda::sm90

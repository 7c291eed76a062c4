// Online softmax on wgmma accumulators: a thread holds columns of two rows, `row` and `row` + 8. c[i] belongs to the
// second row if i / 2 is odd.
#pragma once

#include <cstdint>

#include "cuda/attention/sm90/parameters.h"
#include "cuda/device/mask.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/arithmetic.cuh"

namespace fovea::cuda::sm90 {

__device__ __forceinline__ constexpr int row_of(int i) { return i / 2 % 2; }

// The state of two rows. `offset` is maximum x scale x log2(e), rounded once, so that all uses agree.
struct Rows2 {
  float maximum[2] = {-kInfinity, -kInfinity};
  float offset[2] = {0.0f, 0.0f};
  float sum[2] = {0.0f, 0.0f};  // of this thread's columns
  float factor[2] = {1.0f, 1.0f};
};

// Keys that the mask hides become -inf. `query`: the thread's first row. `key`: its first column.
template <int kCount>
__device__ __forceinline__ void apply_mask(float (&scores)[kCount], const Shape& s, int query, int key) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const Range visible = visible_keys(s, query + 8 * row);
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

// Updates maximum and offset, and rescales the sum. `factor` is what the accumulator must be multiplied by. With kLazy
// the maximum stays as it is while no exponential exceeds 2^8; all uses of the row agree on it, so the result is exact.
template <bool kLazy, int kCount>
__device__ __forceinline__ void update_maximum(const float (&scores)[kCount], Rows2& rows, float scale) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float even = scores[2 * row], odd = scores[2 * row + 1];  // two chains: half the latency
#pragma unroll
    for (int i = 4 + 2 * row; i < kCount; i += 4) even = fmaxf(even, scores[i]), odd = fmaxf(odd, scores[i + 1]);
    const float before = rows.maximum[row];
    float maximum = fmaxf(before, lanes_max<4>(fmaxf(even, odd)));
    if (kLazy && (maximum - before) * scale <= 8.0f) maximum = before;
    rows.maximum[row] = maximum;
    rows.offset[row] = finite_max(rows.maximum[row]) * scale;
    rows.factor[row] = ptx::exp2_approx(fmaf(before, scale, -rows.offset[row]));
    rows.sum[row] *= rows.factor[row];
  }
}

// 2^x for x from -126 to 0.5 by a polynomial of degree 4; relative error below 2.6e-6 (7.5e-5 for degree 3). Smaller x
// give about 2^-126. It runs on the FMA pipe, beside ex2 on the special function unit.
template <int kDegree>
__device__ __forceinline__ float exp2_polynomial(float x) {
  static_assert(kDegree == 3 || kDegree == 4);
  constexpr float kRound = 12582912.0f;  // 1.5 x 2^23: adding it leaves the integer part in the low bits
  x = fmaxf(x, -126.0f);
  const float shifted = x + kRound;
  const float rest = x - (shifted - kRound);  // -0.5 to 0.5
  float y;
  if constexpr (kDegree == 4) {
    y = fmaf(rest, 0.009570102f, 0.05591786f);
    y = fmaf(rest, y, 0.24024745f);
    y = fmaf(rest, y, 0.69312181f);
    y = fmaf(rest, y, 0.99999926f);
  } else {
    y = fmaf(rest, 0.05517167f, 0.24261112f);
    y = fmaf(rest, y, 0.69326099f);
    y = fmaf(rest, y, 0.99992807f);
  }
  return __int_as_float(__float_as_int(y) + (__float_as_int(shifted) << 23));
}

// Scores become exponentials relative to the maximum. kPolynomial: every so many are polynomials; 0: none.
template <int kPolynomial, int kDegree, int kCount>
__device__ __forceinline__ void exponentiate(float (&scores)[kCount], Rows2& rows, float scale) {
  float second[2] = {0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int row = row_of(i);
    const float x = fmaf(scores[i], scale, -rows.offset[row]);
    bool polynomial = false;
    if constexpr (kPolynomial > 0) polynomial = i % kPolynomial == kPolynomial - 1;
    scores[i] = polynomial ? exp2_polynomial<kDegree>(x) : ptx::exp2_approx(x);
    (i % 2 == 0 ? rows.sum[row] : second[row]) += scores[i];
  }
  rows.sum[0] += second[0], rows.sum[1] += second[1];
}

// Exponentials as the A operand of P V.
template <class Element, int kCount>
__device__ __forceinline__ void pack_operand(std::uint32_t (&p)[kCount / 2], const float (&scores)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i += 2) p[i / 2] = ptx::pack<Element>(scores[i], scores[i + 1]);
}

template <bool kLazy, int kCount>
__device__ __forceinline__ void rescale(float (&out)[kCount], const Rows2& rows) {
  if (kLazy && __all_sync(0xffffffffu, rows.factor[0] == 1.0f && rows.factor[1] == 1.0f)) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) out[i] *= rows.factor[row_of(i)];
}

}  // namespace fovea::cuda::sm90

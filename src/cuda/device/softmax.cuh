// Online softmax of a row. A product is q.k before scaling; exponentials are relative to the largest product of the
// row. Also here: reductions over the lanes that share a row, and the last step from (maximum, sum) to (1 / sum, lse).
#pragma once

#include <limits>

#include "cuda/device/mask.cuh"
#include "cuda/device/tensor_ref.h"
#include "cuda/ptx/arithmetic.cuh"

namespace fovea::cuda {

constexpr float kLog2e = 1.44269504088896341f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Maximum and sum over the kLanes lanes that share a row; neighbours are kStep lanes apart.
template <int kLanes, int kStep = 1>
__device__ __forceinline__ float lanes_max(float value) {
#pragma unroll
  for (int step = kStep; step < kStep * kLanes; step *= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}

template <int kLanes, int kStep = 1>
__device__ __forceinline__ float lanes_sum(float value) {
#pragma unroll
  for (int step = kStep; step < kStep * kLanes; step *= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

// The value to subtract from a row's products: the largest one, or 0 while the row has seen no key. Subtracting before
// scaling makes the largest exponential exactly 1, however large the products are.
__device__ __forceinline__ float finite_max(float maximum) { return maximum == -kInfinity ? 0.0f : maximum; }

// For 16-bit elements: 22 correct bits.
struct ApproximateExp {
  // exp(|scale| difference).
  static __device__ __forceinline__ float scaled(float difference, const Shape& s) {
    return ptx::exp2_approx(difference * s.scale_log2e);
  }
  // Backward: exp(|scale| product - lse). 0 where lse is +inf.
  static __device__ __forceinline__ float probability(float product, float lse, const Shape& s) {
    return ptx::exp2_approx(fmaf(product, s.abs_scale, -lse) * kLog2e);
  }
};

// For fp32: all 24 bits.
struct AccurateExp {
  static __device__ __forceinline__ float scaled(float difference, const Shape& s) {
    return expf(difference * s.abs_scale);
  }
  static __device__ __forceinline__ float probability(float product, float lse, const Shape& s) {
    return expf(fmaf(product, s.abs_scale, -lse));
  }
};

// The largest product so far, and the sum of the exponentials that this lane computed.
struct RowState {
  float maximum = -kInfinity;
  float sum = 0.0f;
};

// Updates the running maximum and rescales the sum. Returns the rescale factor of the accumulator.
template <class Exp>
__device__ __forceinline__ float update_max(RowState& row, float tile_maximum, const Shape& s) {
  const float before = row.maximum;
  row.maximum = fmaxf(before, tile_maximum);
  const float factor = Exp::scaled(before - finite_max(row.maximum), s);
  row.sum *= factor;
  return factor;
}

struct FinalRow {
  float inverse_sum;
  float lse;  // natural logarithm
};

// `sum` is over all lanes and splits. It is 0 if no score was above -inf. Then a row that sees no key has out = 0 and
// lse = -inf; a row that sees keys has scores of -inf only, and both are NaN.
__device__ __forceinline__ FinalRow finalize_row(float maximum, float sum, const Shape& s, int query) {
  if (sum == 0.0f) {
    const Range keys = visible_keys(s, query);
    return keys.begin < keys.end ? FinalRow{kNan, kNan} : FinalRow{0.0f, -kInfinity};
  }
  return {1.0f / sum, fmaf(maximum, s.abs_scale, logf(sum))};
}

}  // namespace fovea::cuda

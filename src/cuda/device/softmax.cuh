// The running softmax of a row: weights relative to its largest product, the finish that turns (maximum, sum) into
// (1 / sum, lse), and reductions over the lanes that share a row.
#pragma once

#include <limits>

#include "cuda/device/tensor_ref.h"
#include "cuda/ptx/arithmetic.cuh"

namespace fovea::cuda {

constexpr float kLog2e = 1.44269504088896341f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Sum and maximum over the kLanes lanes that share a row, each kStep from the next.
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

// What is subtracted from a row's products: the largest, or 0 as long as no key was seen. The difference is taken
// before it is scaled: the largest weight is then exactly 1, however large the products are.
__device__ __forceinline__ float reference_of(float maximum) { return maximum == -kInfinity ? 0.0f : maximum; }

// For 16-bit elements: an exponential that is good to 22 bits.
struct ApproximateWeights {
  static __device__ __forceinline__ float weight(float difference, const Shape& s) {
    return ptx::exp2_approx(difference * s.exponent_scale);
  }
  // In backward; lse may be +inf for no weight at all.
  static __device__ __forceinline__ float probability(float product, float lse, const Shape& s) {
    return ptx::exp2_approx(fmaf(product, s.magnitude, -lse) * kLog2e);
  }
};

// For fp32: one that is good to all 24.
struct AccurateWeights {
  static __device__ __forceinline__ float weight(float difference, const Shape& s) {
    return expf(difference * s.magnitude);
  }
  static __device__ __forceinline__ float probability(float product, float lse, const Shape& s) {
    return expf(fmaf(product, s.magnitude, -lse));
  }
};

// Largest product and sum of weights so far; the sum is this lane's share.
struct RowState {
  float maximum = -kInfinity;
  float sum = 0.0f;
};

// Takes in the maximum of a new block; returns the factor for everything accumulated before.
template <class Weights>
__device__ __forceinline__ float raise(RowState& row, float block_maximum, const Shape& s) {
  const float before = row.maximum;
  row.maximum = fmaxf(before, block_maximum);
  const float factor = Weights::weight(before - reference_of(row.maximum), s);
  row.sum *= factor;
  return factor;
}

struct Finished {
  float factor;  // of the accumulated values
  float lse;     // natural logarithm
};

// `sum` over all lanes. No key seen: out = 0, lse = -inf.
__device__ __forceinline__ Finished finish(float maximum, float sum, const Shape& s) {
  if (sum == 0.0f) return {0.0f, -kInfinity};
  return {1.0f / sum, fmaf(maximum, s.magnitude, logf(sum))};
}

}  // namespace fovea::cuda

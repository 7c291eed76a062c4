// Cosines and sines of rotary embedding.
#pragma once

#include "heads/cuda/kernels.h"

namespace fovea::heads {

// Of each pair at a position, in shared memory. The exponential, the angle and its sine are computed in double
// precision. The angle is counted in half turns, so that its reduction is exact.
__device__ __forceinline__ void compute_angles(const RotationParameters& r, std::int64_t position, float2* angles) {
  constexpr double kInversePi = 0.31830988618379067154;
  for (std::int64_t i = threadIdx.x; i < r.pairs; i += blockDim.x) {
    const double exponent = static_cast<double>(i) / static_cast<double>(r.pairs) * r.log2_theta;
    double sine, cosine;
    sincospi(static_cast<double>(r.first_position + position) * (exp2(-exponent) * kInversePi), &sine, &cosine);
    angles[i] = make_float2(static_cast<float>(cosine), static_cast<float>(sine));
  }
}

__device__ __forceinline__ float2 rotated(float2 pair, float2 angle) {
  return make_float2(pair.x * angle.x - pair.y * angle.y, pair.x * angle.y + pair.y * angle.x);
}

}  // namespace fovea::heads

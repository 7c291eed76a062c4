// The softmax of short rows.
#include "baselines/cuda/short_row.cuh"
#include "baselines/cuda/short_softmax.h"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/arithmetic.cuh"

namespace fovea::cuda::baselines {
namespace {

// Reduces the four values of every lane of a warp.
template <class Combine>
__device__ __forceinline__ float reduce_warp(const float (&of_lane)[4], Combine combine) {
  float value = combine(combine(of_lane[0], of_lane[1]), combine(of_lane[2], of_lane[3]));
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}

// Loads the scores of the first kLive segments; after the row's last key they are -infinity. __ldcs makes them leave
// the L2 cache first, so that the probabilities stay there for the next product.
template <int kLive>
__device__ __forceinline__ void load(float (&values)[kLive][4], const ShortRow& row, const float* scores, float sign) {
#pragma unroll
  for (int segment = 0; segment < kLive; ++segment) {
    if (has_keys<kLive>(row, segment))
      *reinterpret_cast<float4*>(values[segment]) =
          __ldcs(reinterpret_cast<const float4*>(scores + segment * kSegment));
  }
  if (sign < 0.0f) {
#pragma unroll
    for (auto& segment : values)
#pragma unroll
      for (float& value : segment) value = -value;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float& last = values[kLive - 1][i];
    last = (kLive - 1) * kSegment + i < row.seen ? last : -kInfinity;
  }
}

// Stores the probabilities, with zeros after the last visible key.
template <int kLive, class Element>
__device__ __forceinline__ void store(const float (&values)[kLive][4], const ShortRow& row, Element* to, float factor) {
#pragma unroll
  for (int segment = 0; segment < kSegments; ++segment) {
    if (segment * kSegment >= row.length) break;
    uint2 four{0, 0};
    if (segment < kLive) {
      const float* const v = values[segment];
      four = {ptx::pack<Element>(v[0] * factor, v[1] * factor), ptx::pack<Element>(v[2] * factor, v[3] * factor)};
    }
    *reinterpret_cast<uint2*>(to + segment * kSegment) = four;
  }
}

// Scaling after the subtraction makes the largest exponential exactly 1, so a sum is 0 or from 1 to kShortRow.
template <class Element, int kLive>
__device__ __forceinline__ void softmax(const ShortSoftmax& p, const ShortRow& row) {
  alignas(16) float values[kLive][4];
  load(values, row, row.columns<const float>(p.scores), p.sign);
  float maxima[4] = {-kInfinity, -kInfinity, -kInfinity, -kInfinity}, sums[4]{};
#pragma unroll
  for (const auto& segment : values)
#pragma unroll
    for (int i = 0; i < 4; ++i) maxima[i] = fmaxf(maxima[i], segment[i]);
  const float maximum = finite_max(reduce_warp(maxima, [](float a, float b) { return fmaxf(a, b); }));
  const float scale = p.abs_scale * kLog2e;
#pragma unroll
  for (auto& segment : values)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] += segment[i] = ptx::exp2_approx((segment[i] - maximum) * scale);
  const float sum = reduce_warp(sums, [](float a, float b) { return a + b; });
  store(values, row, row.columns<Element>(p.to), sum == 0.0f ? 0.0f : __fdividef(1.0f, sum));
  if (p.lse.data != nullptr && row.thread == 0)
    *row.of<float>(p.lse) = sum == 0.0f ? -kInfinity : fmaf(maximum, p.abs_scale, logf(sum));
}

template <class Element>
__global__ void __launch_bounds__(kShortRowThreads, kCtasPerSm) short_softmax(const __grid_constant__ ShortSoftmax p) {
  for_row_of_warp(p.rows, [&](const ShortRow& row, auto live) { softmax<Element, live()>(p, row); });
}

}  // namespace

const void* short_softmax_kernel(ElementKind to) {
  return to == ElementKind::bf16 ? reinterpret_cast<const void*>(&short_softmax<__nv_bfloat16>)
                                 : reinterpret_cast<const void*>(&short_softmax<__half>);
}

}  // namespace fovea::cuda::baselines

// The gradient of short rows of scores.
#include "baselines/cuda/short_gradient.h"
#include "baselines/cuda/short_row.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/arithmetic.cuh"

namespace fovea::cuda::baselines {
namespace {

// Unpacks both halves of a register. Shifts instead of conversions, which would need one register too many.
template <class Element>
__device__ __forceinline__ float2 unpacked(unsigned pair);

template <>
__device__ __forceinline__ float2 unpacked<__nv_bfloat16>(unsigned pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}

template <>
__device__ __forceinline__ float2 unpacked<__half>(unsigned pair) {
  return __half22float2(reinterpret_cast<const __half2&>(pair));
}

// dP and P of the first kLive segments; 0 after the row's last key.
template <class Element, int kLive>
struct Pairs {
  alignas(16) float dp[kLive][4];
  uint2 probabilities[kLive];  // packed

  // Loads with __ldcs, so that both leave the L2 cache first and dS stays there for the next products.
  __device__ __forceinline__ void load(const ShortGradient& p, const ShortRow& row) {
    const float* const dp_row = row.columns<const float>(p.dp);
    const Element* const packed = row.columns<const Element>(p.probabilities);
#pragma unroll
    for (int segment = 0; segment < kLive; ++segment) {
      float4 four{0.0f, 0.0f, 0.0f, 0.0f};
      probabilities[segment] = {0, 0};
      if (has_keys<kLive>(row, segment)) {
        probabilities[segment] = __ldcs(reinterpret_cast<const uint2*>(packed + segment * kSegment));
        four = __ldcs(reinterpret_cast<const float4*>(dp_row + segment * kSegment));
      }
      *reinterpret_cast<float4*>(dp[segment]) = four;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& last = dp[kLive - 1][i];
      last = (kLive - 1) * kSegment + i < row.seen ? last : 0.0f;
    }
  }
  __device__ __forceinline__ float probability(int segment, int i) const {
    const float2 two = unpacked<Element>(i < 2 ? probabilities[segment].x : probabilities[segment].y);
    return i % 2 == 0 ? two.x : two.y;
  }
  // rowsum(P * dP) / rowsum(P).
  __device__ __forceinline__ float mean_dp() const {
    float sum = 0.0f, probability_sum = 0.0f;
#pragma unroll
    for (int segment = 0; segment < kLive; ++segment) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum = fmaf(probability(segment, i), dp[segment][i], sum);
        probability_sum += probability(segment, i);
      }
    }
    sum = lanes_sum<32>(sum);
    probability_sum = lanes_sum<32>(probability_sum);
    return probability_sum > 0.0f ? __fdividef(sum, probability_sum) : 0.0f;
  }
  // Stores dS, with zeros after the last visible key.
  __device__ __forceinline__ void store(Element* to, const ShortRow& row, float delta, float factor) const {
    const auto pair = [&](int segment, int i) {
      const auto one = [&](int at) { return probability(segment, at) * (dp[segment][at] - delta) * factor; };
      return ptx::pack<Element>(one(i), one(i + 1));
    };
#pragma unroll
    for (int segment = 0; segment < kSegments; ++segment) {
      if (segment * kSegment >= row.length) break;
      uint2 four{0, 0};
      if (segment < kLive) four = {pair(segment, 0), pair(segment, 2)};
      *reinterpret_cast<uint2*>(to + segment * kSegment) = four;
    }
  }
};

template <class Element, int kLive>
__device__ __forceinline__ void softmax_gradient(const ShortGradient& p, const ShortRow& row) {
  Pairs<Element, kLive> pairs;
  pairs.load(p, row);
  const float delta =
      p.delta == nullptr ? pairs.mean_dp() : p.delta[std::uint64_t{row.sequence} * p.delta_stride + row.query];
  pairs.store(row.columns<Element>(p.to), row, delta, p.factor);
}

template <class Element>
__global__ void __launch_bounds__(kShortRowThreads, kCtasPerSm)
    short_gradient(const __grid_constant__ ShortGradient p) {
  for_row_of_warp(p.rows, [&](const ShortRow& row, auto live) { softmax_gradient<Element, live()>(p, row); });
}

}  // namespace

const void* short_gradient_kernel(ElementKind element) {
  return element == ElementKind::bf16 ? reinterpret_cast<const void*>(&short_gradient<__nv_bfloat16>)
                                      : reinterpret_cast<const void*>(&short_gradient<__half>);
}

}  // namespace fovea::cuda::baselines

// P from scores and lse, for backward.
#pragma once

#include "cpu/kernels/exponential.inl.h"
#include "cpu/kernels/tile.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

// P of scores and lse. Subtracting lse before exp makes the rounding error relative to the difference, even if scores
// are large. In bf16 all is in log2; the rounding of lse times log2(e) is as large as lse's own.
struct Probability {
  static constexpr double kLog2E = 1.44269504088896340736;
  // 2^x or e^x overflows above it; positive only if lse does not fit.
  static constexpr float kLargestDifference = kBf16Dot ? 127.99f : 88.72f;
  Vec scale, rest;
  Exponential exponential;

  explicit Probability(const Shape& shape)
      : scale(broadcast(kBf16Dot ? shape.log2_scale : shape.scale_hi)),
        rest(broadcast(kBf16Dot ? shape.log2_scale_lo : shape.scale_lo)),
        exponential(static_cast<float>(kLog2E)) {}

  // lse of a row as operator() takes it.
  static float stored(float lse) { return kBf16Dot ? static_cast<float>(static_cast<double>(lse) * kLog2E) : lse; }

  template <int kCount>
  FOVEA_INLINE void operator()(Vec (&x)[kCount], Vec lse) const {
    FOVEA_UNROLL for (int i = 0; i < kCount; ++i) x[i] =
        min(broadcast(kLargestDifference), fma(x[i], rest, fms(x[i], scale, lse)));
    if constexpr (kBf16Dot) return exp2_each(x);
    FOVEA_UNROLL for (int i = 0; i < kCount; ++i) x[i] = exponential(x[i]);
  }
};

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

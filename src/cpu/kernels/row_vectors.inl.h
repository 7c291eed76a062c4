// What the kernels of a transformer share: vectors of a row whose end may lie inside one, sums over lanes, exp.
#pragma once

#include "cpu/kernels/model_kernels.h"
#include "cpu/kernels/panels.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

// The first `count` lanes, at most all; the others are 0.
FOVEA_INLINE Vec load_floats(const float* p, int64_t count) {
  return count >= kLanes ? load(p) : load_tail(p, Element::fp32, 0, count);
}

FOVEA_INLINE void store_floats(float* p, int64_t count, Vec x) {
  if (count >= kLanes)
    store(p, x);
  else
    store_tail(p, Element::fp32, 0, count, x);
}

inline float sum_of_lanes(Vec x) {
  alignas(64) float lanes[kLanes];
  store(lanes, x);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

inline float largest_lane(Vec x) {
  alignas(64) float lanes[kLanes];
  store(lanes, x);
  float largest = lanes[0];
  for (int i = 1; i < kLanes; ++i) largest = lanes[i] > largest ? lanes[i] : largest;
  return largest;
}

// exp(x) for x within the range of normal numbers; beyond it, exp of the range's end. NaN for NaN.
FOVEA_INLINE Vec clamped_exp(Vec x) {
  constexpr float kLog2E = 1.44269504f;
  return exp2(max(broadcast(-87.0f), min(broadcast(88.0f), x)), broadcast(kLog2E));
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

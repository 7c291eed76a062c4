// RMSNorm with the residual addition before it, and its backward.
#pragma once

#include "cpu/kernels/row_vectors.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

void rms_norm(const RmsNormTask& t) {
  for (int64_t r = 0; r < t.rows; ++r) {
    const float* x = t.x + r * t.columns;
    Vec squares = zero();
    if (t.branch != nullptr) {
      float* const sum = t.sum + r * t.columns;
      for (int64_t c = 0; c < t.columns; c += kLanes) {
        const int64_t count = t.columns - c;
        const Vec added = add(load_floats(x + c, count), load_some(t.branch, t.element, r * t.columns + c, count));
        store_floats(sum + c, count, added);
        squares = fma(added, added, squares);
      }
      x = sum;
    } else {
      for (int64_t c = 0; c < t.columns; c += kLanes) {
        const Vec value = load_floats(x + c, t.columns - c);
        squares = fma(value, value, squares);
      }
    }
    const float mean = sum_of_lanes(squares) / static_cast<float>(t.columns);
    const float inverse = 1.0f / __builtin_sqrtf(mean + t.epsilon);
    t.inverse[r] = inverse;
    const Vec factor = broadcast(inverse);
    for (int64_t c = 0; c < t.columns; c += kLanes) {
      const int64_t count = t.columns - c;
      const Vec weight = load_floats(t.weight + c, count);
      const Vec y = mul(mul(load_floats(x + c, count), factor), weight);
      store_some(t.y, t.element, r * t.columns + c, count, y);
    }
  }
}

void rms_norm_backward(const RmsNormBackwardTask& t) {
  for (int64_t r = 0; r < t.rows; ++r) {
    const int64_t row = r * t.columns;
    const float* const x = t.x + row;
    float* const dx = t.dx + row;
    Vec products = zero();
    for (int64_t c = 0; c < t.columns; c += kLanes) {
      const int64_t count = t.columns - c;
      const Vec g = mul(load_some(t.dy, t.element, row + c, count), load_floats(t.weight + c, count));
      products = fma(g, load_floats(x + c, count), products);
    }
    const float scale = t.inverse[r];
    const float mean = sum_of_lanes(products) / static_cast<float>(t.columns);
    const Vec inverse = broadcast(scale), back = broadcast(mean * scale * scale);
    for (int64_t c = 0; c < t.columns; c += kLanes) {
      const int64_t count = t.columns - c;
      const Vec value = load_floats(x + c, count), up = load_some(t.dy, t.element, row + c, count);
      const Vec g = mul(up, load_floats(t.weight + c, count));
      Vec gradient = mul(inverse, sub(g, mul(value, back)));
      if (t.accumulate) gradient = add(gradient, load_floats(dx + c, count));
      store_floats(dx + c, count, gradient);
      if (t.rounded != nullptr) store_some(t.rounded, Element::bf16, row + c, count, gradient);
      const Vec before = r == 0 ? zero() : load_floats(t.dweight + c, count);
      store_floats(t.dweight + c, count, fma(mul(value, inverse), up, before));
    }
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

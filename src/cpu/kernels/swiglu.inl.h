// SwiGLU and its backward.
#pragma once

#include "cpu/kernels/row_vectors.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

FOVEA_INLINE Vec sigmoid(Vec x) {
  const Vec one = broadcast(1.0f);
  return div(one, add(one, clamped_exp(sub(zero(), x))));
}

void swiglu(const SwigluTask& t) {
  for (int64_t r = 0; r < t.rows; ++r) {
    const int64_t gates = 2 * r * t.columns, ups = gates + t.columns;
    for (int64_t c = 0; c < t.columns; c += kLanes) {
      const int64_t count = t.columns - c;
      const Vec gate = load_some(t.gate_up, t.element, gates + c, count);
      const Vec up = load_some(t.gate_up, t.element, ups + c, count);
      store_some(t.out, t.element, r * t.columns + c, count, mul(mul(gate, sigmoid(gate)), up));
    }
  }
}

void swiglu_backward(const SwigluBackwardTask& t) {
  for (int64_t r = 0; r < t.rows; ++r) {
    const int64_t gates = 2 * r * t.columns, ups = gates + t.columns;
    for (int64_t c = 0; c < t.columns; c += kLanes) {
      const int64_t count = t.columns - c;
      const Vec gate = load_some(t.gate_up, t.element, gates + c, count);
      const Vec up = load_some(t.gate_up, t.element, ups + c, count);
      const Vec dout = load_some(t.dout, t.element, r * t.columns + c, count);
      const Vec s = sigmoid(gate), silu = mul(gate, s);
      const Vec slope = fma(silu, sub(broadcast(1.0f), s), s);  // s + gate s (1 - s)
      store_some(t.dgate_up, t.element, gates + c, count, mul(mul(dout, up), slope));
      store_some(t.dgate_up, t.element, ups + c, count, mul(dout, silu));
      if (t.out != nullptr) store_some(t.out, t.element, r * t.columns + c, count, mul(silu, up));
    }
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

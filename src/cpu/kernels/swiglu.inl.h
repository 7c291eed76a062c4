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
    const float *const gates = t.gate_up + 2 * r * t.columns, *const ups = gates + t.columns;
    for (int64_t c = 0; c < t.columns; c += kLanes) {
      const int64_t count = t.columns - c;
      const Vec gate = load_floats(gates + c, count);
      store_floats(t.out + r * t.columns + c, count, mul(mul(gate, sigmoid(gate)), load_floats(ups + c, count)));
    }
  }
}

void swiglu_backward(const SwigluBackwardTask& t) {
  for (int64_t r = 0; r < t.rows; ++r) {
    const int64_t row = 2 * r * t.columns;
    const float *const gates = t.gate_up + row, *const ups = gates + t.columns;
    for (int64_t c = 0; c < t.columns; c += kLanes) {
      const int64_t count = t.columns - c;
      const Vec gate = load_floats(gates + c, count), up = load_floats(ups + c, count);
      const Vec dout = load_floats(t.dout + r * t.columns + c, count);
      const Vec s = sigmoid(gate), silu = mul(gate, s);
      const Vec slope = fma(silu, sub(broadcast(1.0f), s), s);  // s + gate s (1 - s)
      store_floats(t.dgate_up + row + c, count, mul(mul(dout, up), slope));
      store_floats(t.dgate_up + row + t.columns + c, count, mul(dout, silu));
    }
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

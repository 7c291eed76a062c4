// The optimizer's loops over flat arrays: the sum of squares that clipping needs, and AdamW.
#pragma once

#include "cpu/kernels/row_vectors.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

// Floats ahead of those that are read: from memory, the processor's own prefetches come too late.
constexpr int64_t kSquaresAhead = 1024, kAdamWAhead = 512;

float sum_of_squares(const float* x, int64_t count) {
  Vec sum = zero();
  for (int64_t i = 0; i < count; i += kLanes) {
    __builtin_prefetch(x + i + kSquaresAhead);
    const Vec value = load_floats(x + i, count - i);
    sum = fma(value, value, sum);
  }
  return sum_of_lanes(sum);
}

void adamw(const AdamWTask& t) {
  const bool streams = t.streams && reinterpret_cast<uintptr_t>(t.rounded) % 32 == 0;
  const Vec factor = broadcast(t.gradient_factor), rest1 = broadcast(t.rest1), rest2 = broadcast(t.rest2);
  const Vec beta2 = broadcast(t.beta2), step = broadcast(t.step_size), scale = broadcast(t.v_factor);
  const Vec epsilon = broadcast(t.epsilon), decay = broadcast(t.decay);
  for (int64_t i = 0; i < t.count; i += kLanes) {
    const int64_t count = t.count - i;
    __builtin_prefetch(t.gradient + i + kAdamWAhead);
    __builtin_prefetch(t.m + i + kAdamWAhead, 1);
    __builtin_prefetch(t.v + i + kAdamWAhead, 1);
    __builtin_prefetch(t.weight + i + kAdamWAhead, 1);
    const Vec g = mul(load_floats(t.gradient + i, count), factor);
    const Vec m_before = load_floats(t.m + i, count);
    const Vec m = fma(rest1, sub(g, m_before), m_before);
    const Vec v = fma(mul(rest2, g), g, mul(beta2, load_floats(t.v + i, count)));
    const Vec ratio = div(m, fma(sqrt(v), scale, epsilon));
    const Vec decayed = mul(load_floats(t.weight + i, count), decay);
    store_floats(t.m + i, count, m);
    store_floats(t.v + i, count, v);
    const Vec weight = sub(decayed, mul(step, ratio));
    store_floats(t.weight + i, count, weight);
    if (streams && count >= kLanes)
      stream_bf16(t.rounded + i, weight);
    else if (t.rounded != nullptr)
      store_some(t.rounded, Element::bf16, i, count, weight);
  }
  if (streams) end_streams();
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

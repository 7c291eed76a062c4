// Probes that measure the machine's ceilings with this target's instructions.
#pragma once

#include "cpu/measure/probe_table.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

// Keeps the compiler from removing the sums.
void keep(Vec (&x)[kChains]) {
  float kept[kLanes];
  for (int i = 1; i < kChains; ++i) x[0] = add(x[0], x[i]);
  store(kept, x[0]);
  __asm__ volatile("" : : "r"(kept) : "memory");
}

double fma_peak(int64_t iterations) {
  Vec x[kChains];
  for (int i = 0; i < kChains; ++i) x[i] = broadcast(static_cast<float>(i) * 1e-3f);
  const Vec a = broadcast(0.999f), b = broadcast(1e-3f);
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) x[i] = fma(x[i], a, b);
  }
  keep(x);
  return static_cast<double>(iterations) * kChains * kLanes * 2;
}

float read_all(const float* data, int64_t count) {
  constexpr int kStreams = 8;
  Vec x[kStreams];
  for (int i = 0; i < kStreams; ++i) x[i] = zero();
  for (int64_t n = 0; n + kStreams * kLanes <= count; n += kStreams * kLanes) {
#pragma GCC unroll 16
    for (int i = 0; i < kStreams; ++i) x[i] = add(x[i], load(data + n + i * kLanes));
  }
  float kept[kLanes];
  for (int i = 1; i < kStreams; ++i) x[0] = add(x[0], x[i]);
  store(kept, x[0]);
  return kept[0];
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

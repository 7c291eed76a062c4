// The two ends of a language model: rows of an embedding table, and the loss of logits.
#pragma once

#include "cpu/kernels/row_vectors.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

void gather(const GatherTask& t) {
  for (int64_t i = 0; i < t.count; ++i)
    __builtin_memcpy(t.rows + i * t.columns, t.table + t.tokens[i] * t.columns,
                     static_cast<uint64_t>(t.columns) * sizeof(float));
}

void scatter(const ScatterTask& t) {
  for (int64_t i = 0; i < t.count; ++i) {
    const float* const from = t.drows + i * t.stride + t.first_column;
    float* const to = t.dtable + t.tokens[i] * t.stride + t.first_column;
    for (int64_t c = 0; c < t.columns; c += kLanes) {
      const int64_t count = t.columns - c;
      store_floats(to + c, count, add(load_floats(to + c, count), load_floats(from + c, count)));
    }
  }
}

float largest_of(const float* x, int64_t columns) {
  float largest = x[0];
  int64_t c = 0;
  if (columns >= kLanes) {
    Vec running = load(x);
    for (c = kLanes; c + kLanes <= columns; c += kLanes) running = max(load(x + c), running);
    largest = largest_lane(running);
  }
  for (; c < columns; ++c) largest = x[c] > largest ? x[c] : largest;
  return largest;
}

// Rounds a row into the first half of its own memory, front to back: what is overwritten was read. A copy of bytes
// keeps this order, which a store of another type would not.
inline void round_in_place(float* x, Element element, int64_t columns) {
  for (int64_t c = 0; c < columns; c += kLanes)
    store_tail(x, element, c, smaller(kLanes, columns - c), load_floats(x + c, columns - c));
}

void cross_entropy(const CrossEntropyTask& t) {
  for (int64_t r = 0; r < t.rows; ++r) {
    float* const x = t.logits + r * t.columns;
    const float largest = largest_of(x, t.columns), logit = x[t.targets[r]];
    const Vec shift = broadcast(largest);
    Vec total = zero();
    float rest = 0.0f;  // of a last vector that is not full
    for (int64_t c = 0; c < t.columns; c += kLanes) {
      const int64_t count = t.columns - c;
      const Vec e = clamped_exp(sub(load_floats(x + c, count), shift));
      if (count >= kLanes) {
        total = add(total, e);
      } else {
        alignas(64) float lanes[kLanes];
        store(lanes, e);
        for (int64_t i = 0; i < count; ++i) rest += lanes[i];
      }
      if (t.gradient != 0.0f) store_floats(x + c, count, e);
    }
    const float sum = sum_of_lanes(total) + rest;
    t.losses[r] = {largest, sum, logit};
    if (t.gradient == 0.0f) continue;
    const Vec factor = broadcast(t.gradient / sum);
    for (int64_t c = 0; c < t.columns; c += kLanes)
      store_floats(x + c, t.columns - c, mul(load_floats(x + c, t.columns - c), factor));
    x[t.targets[r]] -= t.gradient;
    if (t.element != Element::fp32) round_in_place(x, t.element, t.columns);
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

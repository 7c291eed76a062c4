// Pairs of bf16 in 32-bit lanes and their dot product in portable C++: what pairs_avx512_bf16.h does in hardware, for
// machines without it. Subnormal numbers are kept.
#pragma once

#include "cpu/simd/vec_scalar.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

using PairVec = Bits;

FOVEA_INLINE PairVec load_pairs(const uint32_t* p) {
  PairVec x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
FOVEA_INLINE void store_pairs(uint32_t* p, PairVec x) { __builtin_memcpy(p, &x, sizeof x); }
FOVEA_INLINE PairVec broadcast_pair(const uint32_t* p) { return PairVec{} + static_cast<int32_t>(*p); }
template <int kCount>
FOVEA_INLINE PairVec repeat_pairs(const uint32_t* p) {
  PairVec x;
  for (int i = 0; i < kLanes; ++i) x[i] = static_cast<int32_t>(p[i % kCount]);
  return x;
}
FOVEA_INLINE Vec low_of(PairVec x) { return from_bits(x << 16); }
FOVEA_INLINE Vec high_of(PairVec x) { return from_bits(x & static_cast<int32_t>(0xffff0000u)); }

FOVEA_INLINE Vec dot(PairVec a, PairVec b, Vec c) { return fma(low_of(a), low_of(b), fma(high_of(a), high_of(b), c)); }

FOVEA_INLINE PairVec round_rows(Vec first, Vec second) {
  uint16_t rows[2 * kLanes];
  for (int i = 0; i < kLanes; ++i) {
    rows[i] = bf16_of(first[i]);
    rows[kLanes + i] = bf16_of(second[i]);
  }
  PairVec x;
  __builtin_memcpy(&x, rows, sizeof x);
  return x;
}
FOVEA_INLINE void store_rows(uint32_t* first, uint32_t* second, PairVec rows) {
  uint32_t all[kLanes];
  store_pairs(all, rows);
  __builtin_memcpy(first, all, sizeof all / 2);
  __builtin_memcpy(second, all + kLanes / 2, sizeof all / 2);
}
FOVEA_INLINE PairVec pairs_of_rows(PairVec rows) {
  uint16_t all[2 * kLanes];
  __builtin_memcpy(all, &rows, sizeof all);
  PairVec x;
  for (int i = 0; i < kLanes; ++i) x[i] = static_cast<int32_t>(uint32_t{all[i]} | uint32_t{all[kLanes + i]} << 16);
  return x;
}
FOVEA_INLINE PairVec join_pairs(Vec low, Vec high) { return pairs_of_rows(round_rows(low, high)); }

FOVEA_INLINE PairVec join_positive_pairs(Vec low, Vec high) { return join_pairs(low, high); }

FOVEA_INLINE PairVec join_words(const uint16_t* low, const uint16_t* high) {
  PairVec x;
  for (int i = 0; i < kLanes; ++i) x[i] = static_cast<int32_t>(uint32_t{low[i]} | uint32_t{high[i]} << 16);
  return x;
}

FOVEA_INLINE void store_rounded(uint32_t* p, Vec x) {
  for (int i = 0; i < kLanes; i += 2) p[i / 2] = uint32_t{bf16_of(x[i])} | uint32_t{bf16_of(x[i + 1])} << 16;
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

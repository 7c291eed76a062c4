// Operands of a product as pairs of bf16: two neighbours of the contracted dimension, for one dot-product instruction.
#pragma once

#include "cpu/kernels/kernels.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

using Operand = uint32_t;    // one packed element, which a broadcast repeats; the first value is in the low half
using OperandVec = PairVec;  // one Operand per lane
constexpr int kPairs = 2;    // values of the contracted dimension in an Operand
constexpr bool kBf16Dot = true;

FOVEA_INLINE OperandVec load_operands(const Operand* p) { return load_pairs(p); }
FOVEA_INLINE void store_operands(Operand* p, OperandVec x) { store_pairs(p, x); }
FOVEA_INLINE OperandVec broadcast_operand(const Operand* p) { return broadcast_pair(p); }
template <int kCount>
FOVEA_INLINE OperandVec repeat_operands(const Operand* p) {
  return repeat_pairs<kCount>(p);
}
FOVEA_INLINE Vec multiply_add(OperandVec a, OperandVec b, Vec c) { return dot(a, b, c); }
FOVEA_INLINE void accumulate(OperandVec a, OperandVec b, Vec& sum) { sum = dot(a, b, sum); }

// One vector of V's columns, of two keys.
template <Element kElement>
FOVEA_INLINE OperandVec load_key_operands(const char* key, const char* next) {
  static_assert(kElement == Element::bf16);
  return join_words(reinterpret_cast<const uint16_t*>(key), reinterpret_cast<const uint16_t*>(next));
}

// Rounds fp32 values as store_key_operands does.
FOVEA_INLINE Vec round_to_operand(Vec x) { return low_of(join_pairs(x, x)); }

// Adds the kPairs values of each lane to `sum`, in the same way as the product with V.
FOVEA_INLINE Vec add_operands(Vec sum, OperandVec p) {
  constexpr uint32_t kOnes = 0x3f803f80u;
  return dot(p, broadcast_pair(&kOnes), sum);
}

// Stores kPairs rows of P as [key / 2][query], for a product that contracts keys; returns them as stored.
FOVEA_INLINE OperandVec store_key_operands(Operand* p, const Vec* rows) {
  const PairVec pair = join_pairs(rows[0], rows[1]);
  store_pairs(p, pair);
  return pair;
}

// The same for P, which is not negative.
FOVEA_INLINE OperandVec store_probabilities(Operand* p, const Vec* rows) {
  const PairVec pair = join_positive_pairs(rows[0], rows[1]);
  store_pairs(p, pair);
  return pair;
}

// Multiplies stored P by `factor`; returns `sum` plus the result.
FOVEA_INLINE Vec rescale_key_operands(Operand* p, Vec factor, Vec sum) {
  const PairVec pair = load_pairs(p);
  const Vec scaled[] = {mul(low_of(pair), factor), mul(high_of(pair), factor)};
  return add_operands(sum, store_key_operands(p, scaled));
}

// Memory for fp32 values before they are packed into `operands`: `other`, because packed pairs take less space.
FOVEA_INLINE float* in_place_of(Operand* operands, float* other) {
  (void)operands;
  return other;
}

// Stores kPairs rows of P or dS as [key][query / 2], `stride` operands apart, for a product that contracts queries. The
// second form also stores them as store_key_operands does.
FOVEA_INLINE void store_query_rows(Operand* p, int64_t stride, const Vec* rows) {
  store_rows(p, p + stride, round_rows(rows[0], rows[1]));
}
FOVEA_INLINE void store_query_rows(Operand* p, int64_t stride, const Vec* rows, Operand* key_operands) {
  const PairVec rounded = round_rows(rows[0], rows[1]);
  store_rows(p, p + stride, rounded);
  store_pairs(key_operands, pairs_of_rows(rounded));
}

// Stores one row of P as [key][query / 2], for a product that contracts queries.
FOVEA_INLINE void store_query_operands(Operand* p, int64_t first, Vec row) { store_rounded(p + first / 2, row); }

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

// Operands of a product as pairs of bf16: two neighbours of the contracted dimension, for one dot-product instruction.
#pragma once

namespace fovea::cpu::FOVEA_TARGET {
namespace {

using Operand = uint32_t;    // one element in memory, and what a broadcast repeats; the first value in the low half
using OperandVec = PairVec;  // one Operand per lane
constexpr int kPairs = 2;    // values of the contracted dimension in an Operand
constexpr bool kBf16Dot = true;

FOVEA_INLINE OperandVec load_operands(const Operand* p) { return load_pairs(p); }
FOVEA_INLINE OperandVec broadcast_operand(const Operand* p) { return broadcast_pair(p); }
FOVEA_INLINE Vec multiply_add(OperandVec a, OperandVec b, Vec c) { return dot(a, b, c); }

// Packs x[0] and x[stride]. Bits that bf16 does not hold are cut off.
FOVEA_INLINE Operand make_operand(const float* x, int64_t stride) {
  uint32_t low, high;
  __builtin_memcpy(&low, x, sizeof low);
  __builtin_memcpy(&high, x + stride, sizeof high);
  return low >> 16 | (high & 0xffff0000u);
}

// fp32 values as store_key_operands stores them.
FOVEA_INLINE Vec round_to_operand(Vec x) { return low_of(join_pairs(x, x)); }

// Stores kPairs rows of P as [key / 2][query], for a product that contracts keys.
FOVEA_INLINE void store_key_operands(Operand* p, const Vec* rows) { store_pairs(p, join_pairs(rows[0], rows[1])); }

// Multiplies stored P by `factor`. The unrounded sum of P is kept elsewhere, so `sum` is returned as it is.
FOVEA_INLINE Vec rescale_key_operands(Operand* p, Vec factor, Vec sum) {
  const PairVec pair = load_pairs(p);
  store_pairs(p, join_pairs(mul(low_of(pair), factor), mul(high_of(pair), factor)));
  return sum;
}

// Room for fp32 values that will be packed into `operands`: `other`, since pairs are smaller.
FOVEA_INLINE float* in_place_of(Operand* operands, float* other) {
  (void)operands;
  return other;
}

// Stores one row of P as [key][query / 2], for a product that contracts queries.
FOVEA_INLINE void store_query_operands(Operand* p, int64_t first, Vec row) { store_rounded(p + first / 2, row); }

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

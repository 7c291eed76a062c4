// Operands of a product as fp32: one value, for one fused multiply-add.
#pragma once

#include "cpu/kernels/kernels.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

using Operand = float;     // one packed element, which a broadcast repeats
using OperandVec = Vec;    // one Operand per lane
constexpr int kPairs = 1;  // values of the contracted dimension in an Operand
constexpr bool kBf16Dot = false;

FOVEA_INLINE OperandVec load_operands(const Operand* p) { return load(p); }
FOVEA_INLINE void store_operands(Operand* p, OperandVec x) { store(p, x); }
FOVEA_INLINE OperandVec broadcast_operand(const Operand* p) { return broadcast(*p); }
template <int kCount>
FOVEA_INLINE OperandVec repeat_operands(const Operand* p) {
  return repeat<kCount>(p);
}
FOVEA_INLINE Vec multiply_add(OperandVec a, OperandVec b, Vec c) { return fma(a, b, c); }
FOVEA_INLINE void accumulate(OperandVec a, OperandVec b, Vec& sum) { add_product(a, b, sum); }

// One vector of V's columns; without pairs of keys, of one key.
template <Element kElement>
FOVEA_INLINE OperandVec load_key_operands(const char* key, const char*) {
  if (kElement == Element::fp32) return load(reinterpret_cast<const float*>(key));
  const auto* const p = reinterpret_cast<const uint16_t*>(key);
  return kElement == Element::bf16 ? load_bf16(p) : load_fp16(p);
}

// Rounds fp32 values as store_key_operands does: not at all.
FOVEA_INLINE Vec round_to_operand(Vec x) { return x; }

// Adds the value of each lane to `sum`.
FOVEA_INLINE Vec add_operands(Vec sum, OperandVec p) { return add(sum, p); }

// Stores kPairs rows of P as [key][query], for a product that contracts keys; returns them as stored.
FOVEA_INLINE OperandVec store_key_operands(Operand* p, const Vec* rows) {
  store(p, rows[0]);
  return rows[0];
}

FOVEA_INLINE OperandVec store_probabilities(Operand* p, const Vec* rows) { return store_key_operands(p, rows); }

// Multiplies stored P by `factor`; returns `sum` plus the result.
FOVEA_INLINE Vec rescale_key_operands(Operand* p, Vec factor, Vec sum) {
  const Vec scaled = mul(load(p), factor);
  store(p, scaled);
  return add(sum, scaled);
}

// Memory for fp32 values before they are packed into `operands`: the same memory.
FOVEA_INLINE float* in_place_of(Operand* operands, float* other) {
  (void)other;
  return operands;
}

// Stores kPairs rows of P or dS as [key][query], for a product that contracts queries; the second form's other memory
// is the same.
FOVEA_INLINE void store_query_rows(Operand* p, int64_t, const Vec* rows) { store(p, rows[0]); }
FOVEA_INLINE void store_query_rows(Operand* p, int64_t, const Vec* rows, Operand*) { store(p, rows[0]); }

// Stores one row of P as [key][query], for a product that contracts queries.
FOVEA_INLINE void store_query_operands(Operand* p, int64_t first, Vec row) { store(p + first, row); }

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

// Factors of a product stored as pairs of bf16: two neighbours of the contracted dimension, one dot product
// instruction.
#pragma once

namespace fovea::cpu::FOVEA_TARGET {
namespace {

using Factor = uint32_t;    // what memory holds and a broadcast repeats; the first of the pair in the low half
using FactorVec = PairVec;  // one Factor per lane
constexpr int kPairs = 2;   // values of the contracted dimension in a Factor
constexpr bool kBf16Dot = true;

FOVEA_INLINE FactorVec load_factors(const Factor* p) { return load_pairs(p); }
FOVEA_INLINE FactorVec broadcast_factor(const Factor* p) { return broadcast_pair(p); }
FOVEA_INLINE Vec multiply_add(FactorVec a, FactorVec b, Vec c) { return dot(a, b, c); }

// The factor that holds x[0] and x[stride], which are bf16 values (or lose what bf16 cannot hold).
FOVEA_INLINE Factor make_factor(const float* x, int64_t stride) {
  uint32_t low, high;
  __builtin_memcpy(&low, x, sizeof low);
  __builtin_memcpy(&high, x + stride, sizeof high);
  return low >> 16 | (high & 0xffff0000u);
}

// What store_key_factors keeps of fp32 values.
FOVEA_INLINE Vec round_to_factor(Vec x) { return low_of(join_pairs(x, x)); }

// Stores kPairs rows of weights so that keys are contracted, [key / 2][query].
FOVEA_INLINE void store_key_factors(Factor* p, const Vec* rows) { store_pairs(p, join_pairs(rows[0], rows[1])); }

// What store_key_factors wrote, multiplied by `factor`. The sum of the weights is kept apart, unrounded.
FOVEA_INLINE Vec rescale_key_factors(Factor* p, Vec factor, Vec sum) {
  const PairVec pair = load_pairs(p);
  store_pairs(p, join_pairs(mul(low_of(pair), factor), mul(high_of(pair), factor)));
  return sum;
}

// Where fp32 values can be put that become factors: not among the factors.
FOVEA_INLINE float* in_place_of(Factor* factors, float* other) {
  (void)factors;
  return other;
}

// Stores one row of weights so that queries are contracted, [key][query / 2].
FOVEA_INLINE void store_query_factors(Factor* p, int64_t first, Vec row) { store_rounded(p + first / 2, row); }

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

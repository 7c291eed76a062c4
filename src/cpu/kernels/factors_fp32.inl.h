// Factors of a product stored as fp32: one value, one fused multiply-add.
#pragma once

namespace fovea::cpu::FOVEA_TARGET {
namespace {

using Factor = float;      // what memory holds and a broadcast repeats
using FactorVec = Vec;     // one Factor per lane
constexpr int kPairs = 1;  // values of the contracted dimension in a Factor
constexpr bool kBf16Dot = false;

FOVEA_INLINE FactorVec load_factors(const Factor* p) { return load(p); }
FOVEA_INLINE FactorVec broadcast_factor(const Factor* p) { return broadcast(*p); }
FOVEA_INLINE Vec multiply_add(FactorVec a, FactorVec b, Vec c) { return fma(a, b, c); }

// The factor that holds x[0], x[stride], ..., kPairs of them.
FOVEA_INLINE Factor make_factor(const float* x, int64_t stride) {
  (void)stride;
  return *x;
}

// What a factor keeps of fp32 values.
FOVEA_INLINE Vec round_to_factor(Vec x) { return x; }

// Stores kPairs rows of weights so that keys are contracted, [key][query].
FOVEA_INLINE void store_key_factors(Factor* p, const Vec* rows) { store(p, rows[0]); }

// What store_key_factors wrote, multiplied by `factor`; returns the new sum over the rows added to `sum`.
FOVEA_INLINE Vec rescale_key_factors(Factor* p, Vec factor, Vec sum) {
  const Vec scaled = mul(load(p), factor);
  store(p, scaled);
  return add(sum, scaled);
}

// Where fp32 values can be put that become factors: among the factors themselves.
FOVEA_INLINE float* in_place_of(Factor* factors, float* other) {
  (void)other;
  return factors;
}

// Stores one row of weights so that queries are contracted, [key][query].
FOVEA_INLINE void store_query_factors(Factor* p, int64_t first, Vec row) { store(p + first, row); }

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

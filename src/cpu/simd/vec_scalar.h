// FOVEA_SCALAR_LANES fp32 lanes in portable C++ (the compiler's vector extension), for any processor. Tests compile it
// with the lane counts of other targets.
#pragma once

#include <stdint.h>

namespace fovea::cpu::FOVEA_TARGET {
namespace {

#define FOVEA_INLINE inline __attribute__((always_inline))

constexpr int kLanes = FOVEA_SCALAR_LANES;
using Vec = float __attribute__((vector_size(kLanes * sizeof(float))));
using Bits = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));
using Mask = Bits;
using Words = uint32_t __attribute__((vector_size(kLanes * sizeof(uint32_t))));  // unsigned, so overflow wraps

FOVEA_INLINE Vec broadcast(float x) { return x - Vec{}; }
FOVEA_INLINE Vec zero() { return Vec{}; }
FOVEA_INLINE Vec load(const float* p) {
  Vec x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
FOVEA_INLINE void store(float* p, Vec x) { __builtin_memcpy(p, &x, sizeof x); }

// Four lanes from each of kFours places that are `stride` bytes apart; zero in the other lanes.
template <int kFours>
FOVEA_INLINE Vec load_fours(const char* p, int64_t stride) {
  float x[kLanes] = {};
  for (int i = 0; i < kFours; ++i) __builtin_memcpy(x + 4 * i, p + i * stride, 4 * sizeof(float));
  return load(x);
}

// kCount values, a power of two, over and over.
template <int kCount>
FOVEA_INLINE Vec repeat(const float* p) {
  Vec x;
  for (int i = 0; i < kLanes; ++i) x[i] = p[i % kCount];
  return x;
}

FOVEA_INLINE Vec add(Vec a, Vec b) { return a + b; }
FOVEA_INLINE Vec sub(Vec a, Vec b) { return a - b; }
FOVEA_INLINE Vec mul(Vec a, Vec b) { return a * b; }
FOVEA_INLINE Vec div(Vec a, Vec b) { return a / b; }
FOVEA_INLINE Vec sqrt(Vec x) {
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
}
FOVEA_INLINE Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }  // rounded twice
FOVEA_INLINE void add_product(Vec a, Vec b, Vec& sum) { sum = fma(a, b, sum); }
FOVEA_INLINE Vec fms(Vec a, Vec b, Vec c) { return a * b - c; }

// The second operand if either is NaN.
FOVEA_INLINE Vec max(Vec a, Vec b) { return a > b ? a : b; }
FOVEA_INLINE Vec min(Vec a, Vec b) { return a < b ? a : b; }

// False where either is NaN.
FOVEA_INLINE Mask less(Vec a, Vec b) { return a < b; }
FOVEA_INLINE Mask both(Mask a, Mask b) { return a & b; }
FOVEA_INLINE bool any(Mask m) {
  int32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= m[i];
  return bits != 0;
}
FOVEA_INLINE Vec select(Mask m, Vec yes, Vec no) { return m ? yes : no; }

FOVEA_INLINE Bits bits_of(Vec x) { return reinterpret_cast<Bits>(x); }
FOVEA_INLINE Vec from_bits(Bits x) { return reinterpret_cast<Vec>(x); }

// exp2 gives 0 at this product; smaller products are not allowed.
constexpr float kLeastExponent = -127.0f;

// The upper 12 bits of the significand: products of two such numbers are exact.
FOVEA_INLINE Vec upper(Vec x) { return from_bits(bits_of(x) & static_cast<int32_t>(0xfffff000u)); }

// 2^(x factor) with an unrounded product; NaN for NaN; infinity from 127.5 to 128, the largest allowed product.
// x factor = n + f, |f| <= 1/2, minimax polynomial in f whose value at 0 is exactly 1. Adding 1.5 * 2^23 rounds the
// product and leaves n in the low bits.
FOVEA_INLINE Vec exp2(Vec x, Vec factor) {
  const Vec magic = broadcast(12582912.0f), product = x * factor;
  const Vec xh = upper(x), fh = upper(factor), xl = x - xh, fl = factor - fh;
  const Vec rest = ((xh * fh - product) + (xh * fl + xl * fh)) + xl * fl;  // the product's rounding error, without fma
  const Vec shifted = product + magic;
  const Vec f = (product - (shifted - magic)) + rest;
  Vec p = 0.00015353362f * f + 0.0013398875f;
  p = p * f + 0.00961843692f;
  p = p * f + 0.0555033237f;
  p = p * f + 0.240226477f;
  p = p * f + 0.693147182f;
  p = p * f + 1.0f;
  // Multiplying, unlike adding to the exponent bits, keeps every NaN a NaN.
  return p * reinterpret_cast<Vec>((reinterpret_cast<Words>(shifted) << 23) + 0x3f800000u);
}

#ifdef FOVEA_FOR_AMX
constexpr bool kRestIsPositive = true;  // what split_exponent returns
#else
constexpr bool kRestIsPositive = false;
#endif

// The exponent, at least kLeastExponent, less the nearest or the next lower whole number; multiply_by_power(p, power)
// is p times 2 to that number. Adding 1.5 * 2^23 rounds and leaves the number in the low bits.
FOVEA_INLINE Vec split_exponent(Vec exponent, Vec& power) {
  const Vec magic = broadcast(12582912.0f), bounded = max(broadcast(kLeastExponent), exponent);
  power = bounded + magic;
  if (kRestIsPositive) power = select(less(bounded, power - magic), power - broadcast(1.0f), power);
  return bounded - (power - magic);
}
FOVEA_INLINE Vec multiply_by_power(Vec p, Vec power) {
  return p * reinterpret_cast<Vec>((reinterpret_cast<Words>(power) << 23) + 0x3f800000u);
}

FOVEA_INLINE float float_of(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}
FOVEA_INLINE uint32_t word_of(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}

FOVEA_INLINE Vec load_bf16(const uint16_t* p) {
  Vec x;
  for (int i = 0; i < kLanes; ++i) x[i] = float_of(uint32_t{p[i]} << 16);
  return x;
}

FOVEA_INLINE Vec load_fp16(const uint16_t* p) {
  Vec x;
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t sign = (p[i] & 0x8000u) << 16, magnitude = p[i] & 0x7fffu;
    // In float's exponent range the value is 2^112 too small; the product is exact, subnormals included.
    const uint32_t finite = word_of(float_of(magnitude << 13) * 0x1p112f);
    x[i] = float_of(sign | (magnitude >= 0x7c00u ? 0x7f800000u | ((magnitude & 0x3ffu) << 13) : finite));
  }
  return x;
}

// Round to nearest even; a NaN stays a NaN.
FOVEA_INLINE uint16_t bf16_of(float x) {
  const uint32_t bits = word_of(x);
  if (x != x) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

FOVEA_INLINE uint16_t fp16_of(float x) {
  const uint32_t bits = word_of(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (x != x) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
  // Below 2^-14 fp16 is subnormal with spacing 2^-24: adding 0.5 lets the float addition round to that spacing.
  if (magnitude < 0x38800000u) return static_cast<uint16_t>(sign | (word_of(float_of(magnitude) + 0.5f) - 0x3f000000u));
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
}

FOVEA_INLINE void store_bf16(uint16_t* p, Vec x) {
  for (int i = 0; i < kLanes; ++i) p[i] = bf16_of(x[i]);
}

FOVEA_INLINE void stream_bf16(uint16_t* p, Vec x) { store_bf16(p, x); }
FOVEA_INLINE void end_streams() {}

FOVEA_INLINE void store_fp16(uint16_t* p, Vec x) {
  for (int i = 0; i < kLanes; ++i) p[i] = fp16_of(x[i]);
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

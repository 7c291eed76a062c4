// Eight fp32 lanes on AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace fovea::cpu::FOVEA_TARGET {
namespace {

#define FOVEA_INLINE inline __attribute__((always_inline))

constexpr int kLanes = 8;
using Vec = __m256;
using Mask = __m256;

FOVEA_INLINE Vec zero() { return _mm256_setzero_ps(); }
FOVEA_INLINE Vec broadcast(float x) { return _mm256_set1_ps(x); }
FOVEA_INLINE Vec load(const float* p) { return _mm256_loadu_ps(p); }
FOVEA_INLINE void store(float* p, Vec x) { _mm256_storeu_ps(p, x); }

// Four lanes from each of kFours places that are `stride` bytes apart; zero in the other lanes.
template <int kFours>
FOVEA_INLINE Vec load_fours(const char* p, int64_t stride) {
  const auto four = [&](int i) { return _mm_loadu_ps(reinterpret_cast<const float*>(p + i * stride)); };
  Vec x = zero();
  if constexpr (kFours > 0) x = _mm256_zextps128_ps256(four(0));
  if constexpr (kFours > 1) x = _mm256_insertf128_ps(x, four(1), 1);
  return x;
}

// kCount values, a power of two, over and over.
template <int kCount>
FOVEA_INLINE Vec repeat(const float* p) {
  if constexpr (kCount == 1) return _mm256_set1_ps(*p);
  if constexpr (kCount == 2) return _mm256_castsi256_ps(_mm256_broadcastq_epi64(_mm_loadu_si64(p)));
  if constexpr (kCount == 4) return _mm256_broadcast_ps(reinterpret_cast<const __m128*>(p));
  if constexpr (kCount == 8) return load(p);
}

FOVEA_INLINE Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
FOVEA_INLINE Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
FOVEA_INLINE Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
FOVEA_INLINE Vec div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
FOVEA_INLINE Vec sqrt(Vec x) { return _mm256_sqrt_ps(x); }
FOVEA_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }  // a b + c
FOVEA_INLINE Vec fms(Vec a, Vec b, Vec c) { return _mm256_fmsub_ps(a, b, c); }  // a b - c

// sum += a b in the register of the sum: g++ moves and spills the sums of a product that fills the registers.
FOVEA_INLINE void add_product(Vec a, Vec b, Vec& sum) { asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b)); }

// The second operand if either is NaN.
FOVEA_INLINE Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
FOVEA_INLINE Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }

// False where either is NaN.
FOVEA_INLINE Mask less(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
FOVEA_INLINE Mask both(Mask a, Mask b) { return _mm256_and_ps(a, b); }
FOVEA_INLINE bool any(Mask m) { return _mm256_movemask_ps(m) != 0; }
FOVEA_INLINE Vec select(Mask m, Vec yes, Vec no) { return _mm256_blendv_ps(no, yes, m); }

// exp2 gives 0 at this product; smaller products are not allowed.
constexpr float kLeastExponent = -127.0f;

// 2^(x factor) with an unrounded product, to 1.4 half ulps. NaN for NaN; infinity from 127.5 to 128, the largest
// product. x factor = n + f, |f| <= 1/2, minimax polynomial in f whose value at 0 is exactly 1. Adding 1.5 * 2^23
// rounds the product and leaves n in the low bits.
FOVEA_INLINE Vec exp2(Vec x, Vec factor) {
  const Vec magic = broadcast(12582912.0f);
  const Vec shifted = fma(x, factor, magic);
  const Vec f = fms(x, factor, sub(shifted, magic));
  Vec p = fma(broadcast(0.00015353362f), f, broadcast(0.0013398875f));
  p = fma(p, f, broadcast(0.00961843692f));
  p = fma(p, f, broadcast(0.0555033237f));
  p = fma(p, f, broadcast(0.240226477f));
  p = fma(p, f, broadcast(0.693147182f));
  p = fma(p, f, broadcast(1.0f));
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  // Multiplying, unlike adding to the exponent bits, keeps every NaN a NaN.
  return mul(p, _mm256_castsi256_ps(_mm256_add_epi32(exponent, _mm256_set1_epi32(0x3f800000))));
}

constexpr bool kRestIsPositive = false;  // what split_exponent returns

// The exponent, at least kLeastExponent, less the nearest whole number; multiply_by_power(p, power) is p times 2 to
// that number. Adding 1.5 * 2^23 rounds and leaves the number in the low bits.
FOVEA_INLINE Vec split_exponent(Vec exponent, Vec& power) {
  const Vec magic = broadcast(12582912.0f), bounded = max(broadcast(kLeastExponent), exponent);
  power = add(bounded, magic);
  return sub(bounded, sub(power, magic));
}
FOVEA_INLINE Vec multiply_by_power(Vec p, Vec power) {
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(power), 23);
  return mul(p, _mm256_castsi256_ps(_mm256_add_epi32(exponent, _mm256_set1_epi32(0x3f800000))));
}

FOVEA_INLINE Vec load_bf16(const uint16_t* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

FOVEA_INLINE Vec load_fp16(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// Round to nearest even; a NaN stays a NaN.
FOVEA_INLINE __m128i bf16_of(Vec x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256 unordered = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  const __m256i word = _mm256_srli_epi32(
      _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), unordered)), 16);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(word, word), 0x08);
  return _mm256_castsi256_si128(packed);
}
FOVEA_INLINE void store_bf16(uint16_t* p, Vec x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bf16_of(x)); }

// Past the caches, so that the line is not read first. p is aligned to the bytes of a vector; end_streams() comes
// before another thread may read.
FOVEA_INLINE void stream_bf16(uint16_t* p, Vec x) { _mm_stream_si128(reinterpret_cast<__m128i*>(p), bf16_of(x)); }
FOVEA_INLINE void end_streams() { _mm_sfence(); }

FOVEA_INLINE void store_fp16(uint16_t* p, Vec x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

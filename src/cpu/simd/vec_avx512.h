// Sixteen fp32 lanes on AVX-512 F, BW, DQ and VL.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace fovea::cpu::FOVEA_TARGET {
namespace {

#define FOVEA_INLINE inline __attribute__((always_inline))

constexpr int kLanes = 16;
using Vec = __m512;
using Mask = __mmask16;

FOVEA_INLINE Vec zero() { return _mm512_setzero_ps(); }
FOVEA_INLINE Vec broadcast(float x) { return _mm512_set1_ps(x); }
FOVEA_INLINE Vec load(const float* p) { return _mm512_loadu_ps(p); }
FOVEA_INLINE void store(float* p, Vec x) { _mm512_storeu_ps(p, x); }

// Four lanes from each of kFours places that are `stride` bytes apart; zero in the other lanes.
template <int kFours>
FOVEA_INLINE Vec load_fours(const char* p, int64_t stride) {
  const auto four = [&](int i) { return _mm_loadu_ps(reinterpret_cast<const float*>(p + i * stride)); };
  Vec x = zero();
  if constexpr (kFours > 0) x = _mm512_zextps128_ps512(four(0));
  if constexpr (kFours > 1) x = _mm512_insertf32x4(x, four(1), 1);
  if constexpr (kFours > 2) x = _mm512_insertf32x4(x, four(2), 2);
  if constexpr (kFours > 3) x = _mm512_insertf32x4(x, four(3), 3);
  return x;
}

// kCount values, a power of two, over and over.
template <int kCount>
FOVEA_INLINE Vec repeat(const float* p) {
  if constexpr (kCount == 1) return _mm512_set1_ps(*p);
  if constexpr (kCount == 2) return _mm512_castsi512_ps(_mm512_broadcastq_epi64(_mm_loadu_si64(p)));
  if constexpr (kCount == 4) return _mm512_broadcast_f32x4(_mm_loadu_ps(p));
  if constexpr (kCount == 8) return _mm512_broadcast_f32x8(_mm256_loadu_ps(p));
  if constexpr (kCount == 16) return load(p);
}

FOVEA_INLINE Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
FOVEA_INLINE Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
FOVEA_INLINE Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
FOVEA_INLINE Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
FOVEA_INLINE Vec sqrt(Vec x) { return _mm512_sqrt_ps(x); }
FOVEA_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }  // a b + c
FOVEA_INLINE Vec fms(Vec a, Vec b, Vec c) { return _mm512_fmsub_ps(a, b, c); }  // a b - c

// sum += a b in the register of the sum: g++ moves and spills the sums of a product that fills the registers.
FOVEA_INLINE void add_product(Vec a, Vec b, Vec& sum) { asm("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b)); }

// The second operand if either is NaN.
FOVEA_INLINE Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
FOVEA_INLINE Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }

// False where either is NaN.
FOVEA_INLINE Mask less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
FOVEA_INLINE Mask both(Mask a, Mask b) { return _kand_mask16(a, b); }
FOVEA_INLINE bool any(Mask m) { return m != 0; }
FOVEA_INLINE Vec select(Mask m, Vec yes, Vec no) { return _mm512_mask_blend_ps(m, no, yes); }

// exp2 gives 0 at this product; smaller products are not allowed.
constexpr float kLeastExponent = -151.0f;

// 2^(x factor) with an unrounded product, to 1.4 half ulps. NaN for NaN; infinity at 128, the largest product.
// x factor = n + f, |f| <= 1/2, minimax polynomial in f whose value at 0 is exactly 1. Adding and subtracting 1.5 *
// 2^23 with fma rounds the exact product; a rounding instruction would round a rounded one.
FOVEA_INLINE Vec exp2(Vec x, Vec factor) {
  const Vec magic = broadcast(12582912.0f);
  const Vec n = sub(fma(x, factor, magic), magic);
  const Vec f = fms(x, factor, n);
  Vec p = fma(broadcast(0.00015353362f), f, broadcast(0.0013398875f));
  p = fma(p, f, broadcast(0.00961843692f));
  p = fma(p, f, broadcast(0.0555033237f));
  p = fma(p, f, broadcast(0.240226477f));
  p = fma(p, f, broadcast(0.693147182f));
  p = fma(p, f, broadcast(1.0f));
  return _mm512_scalef_ps(p, n);
}

// split_exponent returns the exponent less a whole number; multiply_by_power(p, power) is p times 2 to that number. On
// Intel's processors with AMX, vreduceps has twice the rate of a rounding instruction; on Zen 4 it gains nothing. It
// takes the next lower whole number, as vscalefps does. Of -infinity it leaves 0, so there is no lower bound.
#ifdef FOVEA_FOR_AMX
constexpr bool kRestIsPositive = true;
FOVEA_INLINE Vec split_exponent(Vec exponent, Vec& power) {
  power = exponent;
  return _mm512_reduce_ps(exponent, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
#else
constexpr bool kRestIsPositive = false;
FOVEA_INLINE Vec split_exponent(Vec exponent, Vec& power) {
  const Vec bounded = max(broadcast(kLeastExponent), exponent);
  power = _mm512_roundscale_ps(bounded, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return sub(bounded, power);
}
#endif
FOVEA_INLINE Vec multiply_by_power(Vec p, Vec power) { return _mm512_scalef_ps(p, power); }

FOVEA_INLINE Vec load_bf16(const uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

FOVEA_INLINE Vec load_fp16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// Round to nearest even; a NaN stays a NaN.
FOVEA_INLINE __m256i bf16_of(Vec x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 unordered = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i word = _mm512_srli_epi32(_mm512_mask_blend_epi32(unordered, rounded, quiet), 16);
  return _mm512_cvtepi32_epi16(word);
}
FOVEA_INLINE void store_bf16(uint16_t* p, Vec x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), bf16_of(x)); }

// Past the caches, so that the line is not read first. p is aligned to the bytes of a vector; end_streams() comes
// before another thread may read.
FOVEA_INLINE void stream_bf16(uint16_t* p, Vec x) { _mm256_stream_si256(reinterpret_cast<__m256i*>(p), bf16_of(x)); }
FOVEA_INLINE void end_streams() { _mm_sfence(); }

FOVEA_INLINE void store_fp16(uint16_t* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

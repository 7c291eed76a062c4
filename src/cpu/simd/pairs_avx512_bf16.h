// Pairs of bf16 in 32-bit lanes and their dot product on AVX512_BF16; extends vec_avx512.h.
#pragma once

#include "cpu/simd/vec_avx512.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

using PairVec = __m512i;

FOVEA_INLINE PairVec load_pairs(const uint32_t* p) { return _mm512_loadu_si512(p); }
FOVEA_INLINE void store_pairs(uint32_t* p, PairVec x) { _mm512_storeu_si512(p, x); }
FOVEA_INLINE PairVec broadcast_pair(const uint32_t* p) { return _mm512_set1_epi32(static_cast<int>(*p)); }

// kCount pairs, a power of two, over and over.
template <int kCount>
FOVEA_INLINE PairVec repeat_pairs(const uint32_t* p) {
  return _mm512_castps_si512(repeat<kCount>(reinterpret_cast<const float*>(p)));
}

// c + a.low b.low + a.high b.high; the instruction treats subnormal numbers as zero.
FOVEA_INLINE Vec dot(PairVec a, PairVec b, Vec c) {
  return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// Two rows rounded to nearest even: the first in the lower half.
FOVEA_INLINE PairVec round_rows(Vec first, Vec second) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
}
FOVEA_INLINE void store_rows(uint32_t* first, uint32_t* second, PairVec rows) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(first), _mm512_castsi512_si256(rows));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(second), _mm512_extracti64x4_epi64(rows, 1));
}

// Pairs of the two rows' elements: those of the first row in the low halves.
FOVEA_INLINE PairVec pairs_of_rows(PairVec rows) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, rows);
}
FOVEA_INLINE PairVec join_pairs(Vec low, Vec high) { return pairs_of_rows(round_rows(low, high)); }

// The same for numbers that are not negative; on AMX's processors ties go up, which takes half the time there.
FOVEA_INLINE PairVec join_positive_pairs(Vec low, Vec high) {
#ifdef FOVEA_FOR_AMX
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i a = _mm512_add_epi32(_mm512_castps_si512(low), half);
  const __m512i b = _mm512_add_epi32(_mm512_castps_si512(high), half);
  return _mm512_mask_mov_epi16(_mm512_srli_epi32(a, 16), 0xaaaaaaaa, b);
#else
  return join_pairs(low, high);
#endif
}

// The bf16 of two rows as pairs: those of `low` in the low halves.
FOVEA_INLINE PairVec join_words(const uint16_t* low, const uint16_t* high) {
  const __m512i order = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i a = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(low)));
  const __m512i b = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(high)));
  return _mm512_permutex2var_epi16(a, order, b);
}

// Stores kLanes contiguous bf16, rounded to nearest even.
FOVEA_INLINE void store_rounded(uint32_t* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}

FOVEA_INLINE Vec low_of(PairVec x) { return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16)); }
FOVEA_INLINE Vec high_of(PairVec x) {
  return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

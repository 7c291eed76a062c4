// The tile registers of AMX: eight of 16 rows of 64 bytes, for products of bf16 pairs. Extends pairs_avx512_bf16.h.
// Tiles are numbered by template arguments. The instructions are written here because g++'s own do not say that they
// access memory.
#pragma once

#include "cpu/simd/pairs_avx512_bf16.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

// Gives this thread whole tile registers until release_tiles; their contents are zero.
inline void configure_tiles() {
  struct alignas(64) Configuration {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};  // the palette has eight tiles
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  const Configuration configuration;
  static_assert(sizeof configuration == 64);
  __asm__ volatile("ldtilecfg %0" : : "m"(configuration));
}

inline void release_tiles() { __asm__ volatile("tilerelease"); }

// Whether bytes that a tile is loaded from stay in the L1 cache.
enum class Cached { stays, streams };

// Rows of 64 bytes that are `stride` bytes apart.
template <int kTile, Cached kRows = Cached::stays>
FOVEA_INLINE void load_tile(const void* rows, int64_t stride) {
  if constexpr (kRows == Cached::streams)
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(rows), "r"(stride), "i"(kTile) : "memory");
  else
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(rows), "r"(stride), "i"(kTile) : "memory");
}

template <int kTile>
FOVEA_INLINE void store_tile(void* rows, int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(rows), "r"(stride), "i"(kTile) : "memory");
}

// c[m][n] += sum over 16 pairs k of a[m][k] . b[k][n]; c is fp32. The instruction treats subnormal numbers as zero.
template <int kC, int kA, int kB>
FOVEA_INLINE void dot_tiles() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

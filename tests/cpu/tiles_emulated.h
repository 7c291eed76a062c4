// The functions of tiles_amx.h in portable C++, for machines without AMX. Extends pairs_scalar.h. A tile that is used
// without a configuration stops the program, as the instruction would.
#pragma once

#include "pairs_scalar.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

static_assert(kLanes == 16);

struct EmulatedTiles {
  bool configured;
  uint32_t rows[8][16][16];
};
thread_local EmulatedTiles emulated_tiles;

inline auto& emulated_tile(int tile) {
  if (!emulated_tiles.configured) __builtin_trap();
  return emulated_tiles.rows[tile];
}

inline void configure_tiles() {
  emulated_tiles = {};
  emulated_tiles.configured = true;
}

inline void release_tiles() { emulated_tiles.configured = false; }

enum class Cached { stays, streams };

template <int kTile, Cached = Cached::stays>
void load_tile(const void* rows, int64_t stride) {
  for (int m = 0; m < 16; ++m)
    __builtin_memcpy(emulated_tile(kTile)[m], static_cast<const char*>(rows) + m * stride, 64);
}

template <int kTile>
void store_tile(void* rows, int64_t stride) {
  for (int m = 0; m < 16; ++m) __builtin_memcpy(static_cast<char*>(rows) + m * stride, emulated_tile(kTile)[m], 64);
}

// Pairs are two sums until the end, as in the instruction.
template <int kC, int kA, int kB>
void dot_tiles() {
  for (int m = 0; m < 16; ++m) {
    Vec low = zero(), high = zero(), sum;
    for (int k = 0; k < 16; ++k) {
      const uint32_t a = emulated_tile(kA)[m][k];
      const PairVec b = load_pairs(emulated_tile(kB)[k]);
      low = fma(broadcast(float_of(a << 16)), low_of(b), low);
      high = fma(broadcast(float_of(a & 0xffff0000u)), high_of(b), high);
    }
    __builtin_memcpy(&sum, emulated_tile(kC)[m], sizeof sum);
    sum = add(sum, add(low, high));
    __builtin_memcpy(emulated_tile(kC)[m], &sum, sizeof sum);
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

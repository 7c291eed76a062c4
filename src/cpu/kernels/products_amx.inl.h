// Products in AMX's tile registers, and the packing of their operands. A product has a step of 32 values of the
// contracted dimension. An operand a has the 16 rows of a tile at any distance; b has pairs in rows, as P and dS are
// stored.
#pragma once

#include "cpu/kernels/pack_keys.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int kTileSide = 16;                             // rows of a tile, and its columns of 4 bytes
constexpr int64_t kTileOperands = kTileSide * kTileSide;  // of a packed tile
constexpr int64_t kOperandBytes = sizeof(Operand);
constexpr int64_t kTileRowBytes = kTileSide * kOperandBytes;  // of a packed tile
constexpr int64_t kTileStep = kTileSide * kPairs;             // values of the contracted dimension in one tile of a
static_assert(kLanes == kTileSide && kPairs == 2 && kQueries == 2 * kTileSide);
static_assert(kTileStep % kTileRows == 0);

// Operands of a block of kKeys keys, as columns.
template <int64_t kKeys>
constexpr int64_t tiled_column_operands(int64_t dim) {
  static_assert(kKeys % kTileStep == 0);
  return divide_up(dim, kTileSide) * kKeys / kTileStep * kTileOperands;
}

// a[row of tiles][step]: `row` and `step` are distances of tiles in operands, `stride` that of two rows in bytes.
struct TilesOfA {
  const Operand* first;
  int64_t row, step, stride;
};

// b[step][column of tiles]: `step` is the distance in operands, `stride` that of two rows in bytes.
struct TilesOfB {
  const Operand* first;
  int64_t step, stride;
};

// Tiles 0 to 3 hold c: M rows of N tiles. Tiles 4 and 5 hold a, 6 and 7 b.
template <int M, int N>
FOVEA_INLINE void load_tiles(const float* c, int64_t stride) {
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(float));
  load_tile<0>(c, bytes);
  if constexpr (N > 1) load_tile<1>(c + kTileSide, bytes);
  if constexpr (M > 1) load_tile<2>(c + kTileSide * stride, bytes);
  if constexpr (M > 1 && N > 1) load_tile<3>(c + kTileSide * stride + kTileSide, bytes);
}

// A load of zeros takes less time than `tilezero`.
template <int M, int N>
FOVEA_INLINE void zero_tiles() {
  alignas(64) static constexpr float kZeros[kTileSide] = {};
  load_tile<0>(kZeros, 0);
  if constexpr (N > 1) load_tile<1>(kZeros, 0);
  if constexpr (M > 1) load_tile<2>(kZeros, 0);
  if constexpr (M > 1 && N > 1) load_tile<3>(kZeros, 0);
}

template <int M, int N>
FOVEA_INLINE void store_tiles(float* c, int64_t stride) {
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(float));
  store_tile<0>(c, bytes);
  if constexpr (N > 1) store_tile<1>(c + kTileSide, bytes);
  if constexpr (M > 1) store_tile<2>(c + kTileSide * stride, bytes);
  if constexpr (M > 1 && N > 1) store_tile<3>(c + kTileSide * stride + kTileSide, bytes);
}

// c += a b. a streams if it is too large for the L1 cache, b stays there.
template <int M, int N, Cached kA>
FOVEA_INLINE void multiply_tiles(TilesOfA a, TilesOfB b, int64_t steps) {
  for (; steps > 0; --steps, a.first += a.step, b.first += b.step) {
    load_tile<4, kA>(a.first, a.stride);
    load_tile<6>(b.first, b.stride);
    dot_tiles<0, 4, 6>();
    if constexpr (N > 1) {
      load_tile<7>(b.first + kTileSide, b.stride);
      dot_tiles<1, 4, 7>();
    }
    if constexpr (M > 1) {
      load_tile<5, kA>(a.first + a.row, a.stride);
      dot_tiles<2, 5, 6>();
    }
    if constexpr (M > 1 && N > 1) dot_tiles<3, 5, 7>();
  }
}

// scores[key][query] of one step of keys, from `key` on, to `scores`: rows of keys, read as operands, times queries as
// [operand stride of dim][kQueries]. N vectors hold queries.
template <int N>
FOVEA_INLINE void multiply_step(const Operand* keys, int64_t key, const Operand* queries, int64_t dim, float* scores) {
  const int64_t stride = operand_stride(dim);
  zero_tiles<2, N>();
  multiply_tiles<2, N, Cached::streams>({keys + key * stride, kTileSide * stride, kTileSide, stride * kOperandBytes},
                                        {queries, kTileSide * kQueries, kQueries * kOperandBytes}, stride / kTileSide);
  store_tiles<2, N>(scores, kQueries);
}

// sums[d][query] += columns[d][key] p[key][query], for M tiles of d and the keys from `begin` to `end` of a block of
// kKeys.
template <int64_t kKeys, int M, int N>
FOVEA_INLINE void add_columns(const Operand* columns, int64_t d, int64_t begin, int64_t end, const Operand* p,
                              float* sums) {
  constexpr int64_t kRow = kKeys / kTileStep * kTileOperands;
  load_tiles<M, N>(sums + d * kQueries, kQueries);
  multiply_tiles<M, N, Cached::streams>(
      {columns + d / kTileSide * kRow + begin / kTileStep * kTileOperands, kRow, kTileOperands, kTileRowBytes},
      {p + begin / kPairs * kQueries, kTileSide * kQueries, kQueries * kOperandBytes}, (end - begin) / kTileStep);
  store_tiles<M, N>(sums + d * kQueries, kQueries);
}

// The same for part `part` of `parts` of all d below `dim`.
template <int64_t kKeys, int N>
inline void add_columns_part(const Operand* columns, int64_t dim, int64_t begin, int64_t end, const Operand* p,
                             float* sums, int64_t part, int64_t parts) {
  const int64_t pairs = divide_up(dim, 2 * kTileSide);  // of tiles
  for (int64_t i = pairs * part / parts; i < pairs * (part + 1) / parts; ++i) {
    const int64_t d = i * 2 * kTileSide;
    if (d + kTileSide < dim)
      add_columns<kKeys, 2, N>(columns, d, begin, end, p, sums);
    else
      add_columns<kKeys, 1, N>(columns, d, begin, end, p, sums);
  }
}

// Packs a block of kKeys keys as a, for contraction over keys: [tile of head dimensions][step][16][16 pairs]. Steps
// without keys are left out; keys from `keys` on are zero.
template <int64_t kKeys>
inline void pack_key_tiles(const InputRows& rows, int64_t first_key, int64_t keys, int64_t dim, Operand* to) {
  const int64_t stride = rows.row_stride * static_cast<int64_t>(sizeof(uint16_t));
  const char* const first = static_cast<const char*>(rows.data) + first_key * stride;
  constexpr int64_t kSteps = kKeys / kTileStep;
  for (int64_t step = 0; step < divide_up(keys, kTileStep); ++step) {
    for (int64_t d = 0; d < dim; d += kTileSide) {
      Vec x[kTileSide];
      for (int i = 0; i < kTileSide; ++i) {
        const int64_t key = step * kTileStep + i * kPairs;
        x[i] = reinterpret_cast<Vec>(load_values<Element::bf16>(first + key * stride, stride, d, dim, key, keys));
      }
      transpose_square<1>(x);
      float* const tile = reinterpret_cast<float*>(to + (d / kTileSide * kSteps + step) * kTileOperands);
      FOVEA_UNROLL for (int i = 0; i < kTileSide; ++i) store(tile + i * kTileSide, x[i]);
    }
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

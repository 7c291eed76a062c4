// Products in AMX's tile registers, and the packing of their operands. A product has a step of 32 values of the
// contracted dimension. An operand a is packed in whole tiles of 16 rows and one step; b has pairs in rows, as P and
// dS are stored.
#pragma once

#include "cpu/kernels/tile.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int kTileSide = 16;                                   // rows of a tile, and its columns of 4 bytes
constexpr int64_t kTileOperands = kTileSide * kTileSide;        // of a packed tile
constexpr int64_t kTileRowBytes = kTileSide * sizeof(Operand);  // of a packed tile
constexpr int64_t kTileStep = kTileSide * kPairs;               // values of the contracted dimension in one tile of a
constexpr int64_t kBlockSteps = kKeyBlock / kTileStep;
static_assert(kLanes == kTileSide && kPairs == 2 && kQueries == 2 * kTileSide);
static_assert(kKeyBlock % kTileStep == 0 && kTileStep % kTileRows == 0);

constexpr int64_t tile_steps(int64_t values) { return divide_up(values, kTileStep); }
constexpr int64_t tiled_operands(int64_t rows, int64_t values) {
  return divide_up(rows, kTileSide) * tile_steps(values) * kTileOperands;
}
constexpr int64_t words_of(int64_t dim) { return tile_steps(dim) * kTileStep; }  // of a row, in whole steps

// a[row of tiles][step]: packed tiles; distances in operands.
struct TilesOfA {
  const Operand* first;
  int64_t row, step;
};

// b[step][column of tiles]: `step` is the distance in operands, `stride` that of two rows in bytes.
struct TilesOfB {
  const Operand* first;
  int64_t step, stride;
};

// Tiles 0 to 3 hold c: M rows of N tiles. Tiles 4 and 5 hold a, 6 and 7 b.
template <int M, int N>
FOVEA_INLINE void zero_tiles() {
  zero_tile<0>();
  if constexpr (N > 1) zero_tile<1>();
  if constexpr (M > 1) zero_tile<2>();
  if constexpr (M > 1 && N > 1) zero_tile<3>();
}

template <int M, int N>
FOVEA_INLINE void load_tiles(const float* c, int64_t stride) {
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(float));
  load_tile<0>(c, bytes);
  if constexpr (N > 1) load_tile<1>(c + kTileSide, bytes);
  if constexpr (M > 1) load_tile<2>(c + kTileSide * stride, bytes);
  if constexpr (M > 1 && N > 1) load_tile<3>(c + kTileSide * stride + kTileSide, bytes);
}

template <int M, int N>
FOVEA_INLINE void store_tiles(float* c, int64_t stride) {
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(float));
  store_tile<0>(c, bytes);
  if constexpr (N > 1) store_tile<1>(c + kTileSide, bytes);
  if constexpr (M > 1) store_tile<2>(c + kTileSide * stride, bytes);
  if constexpr (M > 1 && N > 1) store_tile<3>(c + kTileSide * stride + kTileSide, bytes);
}

// c += a b
template <int M, int N>
FOVEA_INLINE void multiply_tiles(TilesOfA a, TilesOfB b, int64_t steps) {
  for (; steps > 0; --steps, a.first += a.step, b.first += b.step) {
    load_tile<4>(a.first, kTileRowBytes);
    load_tile<6>(b.first, b.stride);
    dot_tiles<0, 4, 6>();
    if constexpr (N > 1) {
      load_tile<7>(b.first + kTileSide, b.stride);
      dot_tiles<1, 4, 7>();
    }
    if constexpr (M > 1) {
      load_tile<5>(a.first + a.row, kTileRowBytes);
      dot_tiles<2, 5, 6>();
    }
    if constexpr (M > 1 && N > 1) dot_tiles<3, 5, 7>();
  }
}

// scores[key][query] of one step of keys, from `key` on: packed rows of keys times queries as [dim / kPairs][kQueries].
// N vectors hold queries.
template <int N>
FOVEA_INLINE void multiply_keys(const Operand* keys, int64_t key, const Operand* queries, int64_t dim, float* scores) {
  const int64_t steps = tile_steps(dim), row = steps * kTileOperands;
  zero_tiles<2, N>();
  multiply_tiles<2, N>({keys + key / kTileSide * row, row, kTileOperands},
                       {queries, kTileSide * kQueries, kQueries * sizeof(Operand)}, steps);
  store_tiles<2, N>(scores, kQueries);
}

// sums[d][query] += columns[d][key] p[key][query], for M tiles of d and the keys of a block from `begin` to `end`.
template <int M, int N>
FOVEA_INLINE void add_columns(const Operand* columns, int64_t d, int64_t begin, int64_t end, const Operand* p,
                              float* sums) {
  constexpr int64_t kRow = kBlockSteps * kTileOperands;
  load_tiles<M, N>(sums + d * kQueries, kQueries);
  multiply_tiles<M, N>({columns + d / kTileSide * kRow + begin / kTileStep * kTileOperands, kRow, kTileOperands},
                       {p + begin / kPairs * kQueries, kTileSide * kQueries, kQueries * sizeof(Operand)},
                       (end - begin) / kTileStep);
  store_tiles<M, N>(sums + d * kQueries, kQueries);
}

// The same for part `part` of `parts` of all d below `dim`.
template <int N>
inline void add_columns_part(const Operand* columns, int64_t dim, int64_t begin, int64_t end, const Operand* p,
                             float* sums, int64_t part, int64_t parts) {
  const int64_t pairs = divide_up(dim, 2 * kTileSide);  // of tiles
  for (int64_t i = pairs * part / parts; i < pairs * (part + 1) / parts; ++i) {
    const int64_t d = i * 2 * kTileSide;
    if (d + kTileSide < dim)
      add_columns<2, N>(columns, d, begin, end, p, sums);
    else
      add_columns<1, N>(columns, d, begin, end, p, sums);
  }
}

// Reads rows [first, first + count) of bf16 as words, times `sign` (1, 0 or -1), in steps of kTileStep words. Row r,
// step s is at to + r * row + s * step. Rows up to kTileSide and words behind `dim` become zero.
inline void read_words(const InputRows& rows, int64_t group, int64_t first, int64_t count, int64_t dim, float sign,
                       uint16_t* to, int64_t row, int64_t step) {
  constexpr int64_t kBytes = kTileStep * sizeof(uint16_t);
  for (int64_t r = 0; r < kTileSide; ++r, to += row) {
    const int64_t offset = r < count ? row_offset(rows.head_stride, rows.row_stride, group, first + r) : 0;
    const uint16_t* const from = static_cast<const uint16_t*>(rows.data) + offset;
    uint16_t* words = to;
    for (int64_t d = 0, left = r < count ? dim : 0; d < dim; d += kTileStep, left -= kTileStep, words += step) {
      if (left >= kTileStep) {
        __builtin_memcpy(words, from + d, kBytes);  // of a constant size: an instruction, not a call
      } else {
        __builtin_memset(words, 0, kBytes);
        if (left > 0) __builtin_memcpy(words, from + d, static_cast<uint64_t>(left) * sizeof(uint16_t));
      }
      for (int i = 0; sign != 1.0f && i < kTileStep; i += kLanes)
        store_bf16(words + i, mul(load_bf16(words + i), broadcast(sign)));
    }
  }
}

// Packs rows as a, for contraction over their elements: [tile of rows][step][16 rows][16 pairs].
inline void pack_rows(const InputRows& rows, int64_t first, int64_t count, int64_t tiles, int64_t dim, Operand* to) {
  const int64_t tile = tile_steps(dim) * kTileOperands;
  for (int64_t t = 0; t < tiles; ++t, to += tile, first += kTileSide, count -= kTileSide)
    read_words(rows, 1, first, count, dim, 1.0f, reinterpret_cast<uint16_t*>(to), kTileStep, kTileOperands * kPairs);
}

// Joins rows 2 i and 2 i + 1 of words: to[i][column] holds a pair. `columns` is rounded up to kLanes.
inline void join_rows(const uint16_t* words, int64_t stride, int64_t pairs, int64_t columns, Operand* to,
                      int64_t to_stride) {
  for (int64_t i = 0; i < pairs; ++i, words += 2 * stride, to += to_stride) {
    for (int64_t c = 0; c < columns; c += kLanes) store_operands(to + c, join_words(words + c, words + stride + c));
  }
}

// Packs kTileStep rows of words as one step of a, for contraction over the rows: [tile of columns][16 columns][16
// pairs], tiles `tile` operands apart.
inline void pack_columns(const uint16_t* words, int64_t stride, int64_t columns, Operand* to, int64_t tile) {
  for (int64_t c = 0; c < columns; c += kTileSide, to += tile) {
    Operand pairs[kTileOperands];
    join_rows(words + c, stride, kTileSide, kTileSide, pairs, kTileSide);
    transpose(reinterpret_cast<const float*>(pairs), kTileSide, kTileSide, kTileSide, reinterpret_cast<float*>(to),
              kTileSide);
  }
}

// Reads one tile of query rows as words, [kQueries][stride].
inline void read_query_words(const InputRows& rows, int64_t group, int64_t first, int64_t count, int64_t dim,
                             float sign, uint16_t* words) {
  const int64_t stride = words_of(dim);
  for (int64_t r = 0; r < kQueries; r += kTileSide)
    read_words(rows, group, first + r, count - r, dim, sign, words + r * stride, stride, kTileStep);
}

// Packs them as b for contraction over the head dimension: [dim / kPairs][kQueries], in whole steps.
inline void pack_query_words(const uint16_t* words, int64_t dim, Operand* to) {
  const int64_t pairs = words_of(dim) / kPairs;
  transpose(reinterpret_cast<const float*>(words), pairs, kQueries, pairs, reinterpret_cast<float*>(to), kQueries);
}

// Packs the keys of a block as a, for contraction over keys: [tile of head dimensions][step][16][16 pairs].
inline void pack_key_columns(const InputRows& rows, int64_t first, int64_t count, int64_t dim, uint16_t* words,
                             Operand* to) {
  const int64_t stride = words_of(dim);
  for (int64_t step = 0; step < kBlockSteps; ++step, first += kTileStep, count -= kTileStep) {
    for (int64_t r = 0; r < kTileStep; r += kTileSide)
      read_words(rows, 1, first + r, count - r, dim, 1.0f, words + r * stride, stride, kTileStep);
    pack_columns(words, stride, dim, to + step * kTileOperands, kBlockSteps * kTileOperands);
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

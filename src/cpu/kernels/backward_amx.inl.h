// Backward with all five products in AMX's tile registers; the formulas are those of backward.inl.h. S and dP go
// through buffers in the L1 cache, one step of keys at a time; the products of the next step stand before the
// exponentials of this one. P and dS of all query tiles of a slab are kept for one key block, so that dV and dK are
// loaded and stored once per slab.
#pragma once

#include "cpu/kernels/backward.inl.h"
#include "cpu/kernels/products_amx.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int64_t kAmxSlabTiles = 8;
constexpr int64_t kBufferRows = 2 * kTileStep;       // keys in the buffers: those of this step and of the next
constexpr int64_t kRowOperands = kQueries / kPairs;  // of P and dS, of one key
static_assert(kRowOperands == kTileSide);

struct AmxBackwardTile : BackwardTile {
  // Of one key block, [kKeyBlock][kQueries / kPairs]; its keys in whole steps. Empty if no lane sees a key.
  Operand *p, *ds;
  int64_t begin, end;
};

struct AmxBackwardScratch {
  BackwardScratch common;
  AmxBackwardTile* tiles;
  Operand *k, *v;      // [block]: a of S and dP
  Operand* k_columns;  // [block]: a of dQ
  Operand* ds_keys;    // [kKeyBlock / kPairs][kQueries]
  float *scores, *dp;  // [kBufferRows][kQueries]
  float* square;       // [kTileSide][kTileSide]
  uint16_t* words;     // [kQueries][dimension, in whole steps]
};

int64_t carve(const Shape& shape, int64_t keys, char* base, AmxBackwardScratch& s) {
  const BackwardSizes z = sizes_of(shape);
  const int64_t blocks = divide_up(keys, kKeyBlock), widest = larger(shape.dim_qk, shape.dim_v);
  Scratch memory{base, 0};
  s.tiles = memory.take<AmxBackwardTile>(kAmxSlabTiles);
  s.k = memory.take<Operand>(blocks * tiled_operands(kKeyBlock, shape.dim_qk));
  s.v = memory.take<Operand>(blocks * tiled_operands(kKeyBlock, shape.dim_v));
  s.k_columns = memory.take<Operand>(blocks * tiled_operands(shape.dim_qk, kKeyBlock));
  s.common.dk = memory.take<float>(blocks * kKeyBlock * z.k_padded);
  s.common.dv = memory.take<float>(blocks * kKeyBlock * z.v_padded);
  s.common.rows = memory.take<float>(kQueries * padded(widest));
  s.ds_keys = memory.take<Operand>(kKeyBlock / kPairs * kQueries);
  s.scores = memory.take<float>(kBufferRows * kQueries);
  s.dp = memory.take<float>(kBufferRows * kQueries);
  s.square = memory.take<float>(kTileSide * kTileSide);
  s.words = memory.take<uint16_t>(kQueries * words_of(widest));
  for (int64_t t = 0; t < kAmxSlabTiles; ++t) {
    AmxBackwardTile tile{};
    tile.q = memory.take<Operand>(words_of(shape.dim_qk) / kPairs * kQueries);
    tile.dout = memory.take<Operand>(words_of(shape.dim_v) / kPairs * kQueries);
    tile.q_rows = memory.take<Operand>(kRowOperands * z.k_padded);
    tile.dout_rows = memory.take<Operand>(kRowOperands * z.v_padded);
    tile.dq = memory.take<float>(z.k_padded * kQueries);
    tile.lse = memory.take<float>(kQueries);
    tile.delta = memory.take<float>(kQueries);
    tile.p = memory.take<Operand>(kKeyBlock * kRowOperands);
    tile.ds = memory.take<Operand>(kKeyBlock * kRowOperands);
    if (base != nullptr) s.tiles[t] = tile;
  }
  return memory.used;
}

void pack_amx_chunk(const BackwardTask& task, const AmxBackwardScratch& s) {
  const Shape& shape = *task.shape;
  const Wanted wanted = wanted_of(task);
  constexpr int64_t kTiles = kKeyBlock / kTileSide;
  for (int64_t key = 0, block = 0; key < task.keys; key += kKeyBlock, ++block) {
    const int64_t first = task.first_key + key, keys = smaller(kKeyBlock, task.keys - key);
    pack_rows(task.k, first, keys, kTiles, shape.dim_qk, s.k + block * tiled_operands(kKeyBlock, shape.dim_qk));
    if (wanted.ds())
      pack_rows(task.v, first, keys, kTiles, shape.dim_v, s.v + block * tiled_operands(kKeyBlock, shape.dim_v));
    if (wanted.dq)
      pack_key_columns(task.k, first, keys, shape.dim_qk, s.words,
                       s.k_columns + block * tiled_operands(shape.dim_qk, kKeyBlock));
  }
  const BackwardSizes z = sizes_of(shape);
  const int64_t keys = round_up(task.keys, kKeyBlock);
  for (int64_t i = 0; i < keys * z.k_padded; i += kLanes) store(s.common.dk + i, zero());
  for (int64_t i = 0; i < keys * z.v_padded; i += kLanes) store(s.common.dv + i, zero());
}

// delta = rowsum(dout * out): the diagonal of out dout^T, so each sum has the order of dP's. If a row sees one key, out
// is that key's v, and dP - delta is exactly 0. As bf16, out of fp32 is split into its leading half and the rest.
void sum_amx_delta(const BackwardTask& task, const AmxBackwardScratch& s, const AmxBackwardTile& tile) {
  const Shape& shape = *task.shape;
  const int64_t dim = padded(shape.dim_v), stride = words_of(shape.dim_v), steps = tile_steps(shape.dim_v);
  read_rows(task.out, shape.group, tile.first_row, tile.rows, shape.dim_v, s.common.rows, kQueries, dim);
  __builtin_memset(s.words, 0, static_cast<uint64_t>(kQueries * stride) * sizeof(uint16_t));
  for (int part = 0; part < (task.out.element == Element::fp32 ? 2 : 1); ++part) {
    for (int64_t row = 0; row < kQueries; ++row) {
      for (int64_t d = 0; d < dim; d += kLanes) {
        float* const x = s.common.rows + row * dim + d;
        store_bf16(s.words + row * stride + d, load(x));
        store(x, sub(load(x), round_to_operand(load(x))));
      }
    }
    for (int64_t w = 0; w < kQueries; w += kTileSide) {
      zero_tile<0>();
      for (int64_t step = 0; step < steps; ++step) {
        load_tile<4>(s.words + w * stride + step * kTileStep, stride * static_cast<int64_t>(sizeof(uint16_t)));
        load_tile<6>(tile.dout + step * kTileSide * kQueries + w, kQueries * sizeof(Operand));
        dot_tiles<0, 4, 6>();
      }
      store_tile<0>(s.square, kTileSide * sizeof(float));
      for (int64_t i = 0; i < kTileSide; ++i)
        tile.delta[w + i] = (part == 0 ? 0.0f : tile.delta[w + i]) + s.square[i * kTileSide + i];
    }
  }
}

void begin_amx_tile(const BackwardTask& task, const AmxBackwardScratch& s, int64_t first_row, int64_t rows,
                    AmxBackwardTile& tile) {
  const Shape& shape = *task.shape;
  const BackwardSizes z = sizes_of(shape);
  tile.first_row = first_row;
  tile.rows = rows;
  find_visible(shape, first_row, rows, tile.visible);
  read_row_values(task, first_row, tile);
  read_query_words(task.q, shape.group, first_row, rows, shape.dim_qk, 1.0f, s.words);
  join_rows(s.words, words_of(shape.dim_qk), kRowOperands, z.k_padded, tile.q_rows, z.k_padded);
  if (shape.sign != 1.0f) read_query_words(task.q, shape.group, first_row, rows, shape.dim_qk, shape.sign, s.words);
  pack_query_words(s.words, shape.dim_qk, tile.q);
  read_query_words(task.dout, shape.group, first_row, rows, shape.dim_v, 1.0f, s.words);
  join_rows(s.words, words_of(shape.dim_v), kRowOperands, z.v_padded, tile.dout_rows, z.v_padded);
  pack_query_words(s.words, shape.dim_v, tile.dout);
  if (wanted_of(task).ds() && task.delta.data == nullptr) sum_amx_delta(task, s, tile);
  for (int64_t i = 0; i < z.k_padded * kQueries; i += kLanes) store(tile.dq + i, zero());
}

// P and dS of kTileRows keys from `key` on, counted from `first_key`, of one vector of queries.
template <class Score>
FOVEA_INLINE void differentiate(const Shape& shape, const AmxBackwardScratch& s, const AmxBackwardTile& tile,
                                int64_t first_key, int64_t key, int n, const EdgeMask* edge, bool wants_ds) {
  const int64_t at = key % kBufferRows * kQueries + n * kLanes;
  const Probability probability(shape);
  const Vec lse = load(tile.lse + n * kLanes), delta = load(tile.delta + n * kLanes);
  FOVEA_UNROLL for (int m = 0; m < kTileRows; m += kPairs) {
    Vec pair[kPairs];
    FOVEA_UNROLL for (int i = 0; i < kPairs; ++i) {
      const ScorePosition position{tile.first_row + n * kLanes, first_key + key + m + i, false};
      const Vec product = load(s.scores + at + (m + i) * kQueries);
      Vec p = probability(Score::apply(shape, product, position), lse);
      if (edge != nullptr) p = select(edge->sees(key + m + i, n), p, zero());
      store_query_operands(tile.p + (key + m + i) * kRowOperands, n * kLanes, p);
      if (!wants_ds) continue;
      const Vec dp = sub(load(s.dp + at + (m + i) * kQueries), delta);
      pair[i] = mul(Score::differentiate(shape, product, p, position), dp);
      if (edge != nullptr) pair[i] = select(edge->sees(key + m + i, n), pair[i], zero());
      store_query_operands(tile.ds + (key + m + i) * kRowOperands, n * kLanes, pair[i]);
    }
    if (wants_ds) store_key_operands(s.ds_keys + (key + m) / kPairs * kQueries + n * kLanes, pair);
  }
}

// A block of packed keys, with its part of dK and dV.
struct AmxBackwardBlock {
  const Operand *k, *v, *k_columns;
  float *dk, *dv;
  int64_t first_key;
};

// P, dS and dQ of one query tile and one key block.
template <class Score>
__attribute__((noinline)) void amx_tile_block(const Shape& shape, const AmxBackwardScratch& s,
                                              const AmxBackwardTile& tile, const AmxBackwardBlock& block,
                                              Wanted wanted) {
  const Interval common{tile.visible.common.begin - block.first_key, tile.visible.common.end - block.first_key};
  EdgeMask edge;
  if (tile.begin < common.begin || common.end < tile.end) edge.set(tile.visible, block.first_key);
  const auto multiply_step = [&](int64_t key) {
    const int64_t at = key % kBufferRows * kQueries;
    multiply_keys<2>(block.k, key, tile.q, shape.dim_qk, s.scores + at);
    if (wanted.ds()) multiply_keys<2>(block.v, key, tile.dout, shape.dim_v, s.dp + at);
  };
  multiply_step(tile.begin);
  for (int64_t key = tile.begin; key < tile.end; key += kTileStep) {
    if (key + kTileStep < tile.end) multiply_step(key + kTileStep);
    for (int64_t row = key; row < key + kTileStep; row += kTileRows) {
      const bool inside = common.begin <= row && row + kTileRows <= common.end;
      FOVEA_UNROLL for (int n = 0; n < kTileVectors; ++n) {
        differentiate<Score>(shape, s, tile, block.first_key, row, n, inside ? nullptr : &edge, wanted.ds());
      }
    }
  }
  if (wanted.dq) add_columns_part<2>(block.k_columns, shape.dim_qk, tile.begin, tile.end, s.ds_keys, tile.dq, 0, 1);
}

// sums[key][d] += sum over the slab's queries of probabilities[key][query] * rows[query][d], for N tiles of columns.
template <int N>
void add_slab_sums(const AmxBackwardScratch& s, int64_t tiles, Operand* AmxBackwardTile::*probabilities,
                   Operand* BackwardTile::*rows, int64_t key, int64_t d, int64_t dim, float* sums) {
  load_tiles<2, N>(sums + key * dim + d, dim);
  for (int64_t t = 0; t < tiles; ++t) {
    const AmxBackwardTile& tile = s.tiles[t];
    if (key < tile.begin || tile.end <= key) continue;
    multiply_tiles<2, N>({tile.*probabilities + key * kRowOperands, kTileOperands, 0},
                         {tile.*rows + d, 0, dim * static_cast<int64_t>(sizeof(Operand))}, 1);
  }
  store_tiles<2, N>(sums + key * dim + d, dim);
}

void add_slab(const AmxBackwardScratch& s, int64_t tiles, Operand* AmxBackwardTile::*probabilities,
              Operand* BackwardTile::*rows, int64_t dim, float* sums) {
  for (int64_t key = 0; key < kKeyBlock; key += kTileStep) {
    for (int64_t d = 0; d < dim; d += 2 * kTileSide) {
      if (d + kTileSide < dim)
        add_slab_sums<2>(s, tiles, probabilities, rows, key, d, dim, sums);
      else
        add_slab_sums<1>(s, tiles, probabilities, rows, key, d, dim, sums);
    }
  }
}

// One key block against the slab's tiles.
template <class Score>
void amx_slab_block(const Shape& shape, const AmxBackwardScratch& s, int64_t tiles, const AmxBackwardBlock& block,
                    Wanted wanted) {
  bool seen = false;
  for (int64_t t = 0; t < tiles; ++t) {
    AmxBackwardTile& tile = s.tiles[t];
    const Interval any{tile.visible.any.begin - block.first_key, tile.visible.any.end - block.first_key};
    tile.begin = tile.end = 0;
    if (any.begin >= kKeyBlock || any.end <= 0) continue;
    tile.begin = larger(0, any.begin) / kTileStep * kTileStep;
    tile.end = smaller(kKeyBlock, round_up(any.end, kTileStep));
    amx_tile_block<Score>(shape, s, tile, block, wanted);
    seen = true;
  }
  if (!seen) return;
  const BackwardSizes z = sizes_of(shape);
  if (wanted.dv) add_slab(s, tiles, &AmxBackwardTile::p, &BackwardTile::dout_rows, z.v_padded, block.dv);
  if (wanted.dk) add_slab(s, tiles, &AmxBackwardTile::ds, &BackwardTile::q_rows, z.k_padded, block.dk);
}

// All of the chunk's keys against the slab of query tiles that starts at `first_row`.
template <class Score>
bool amx_backward_slab(const BackwardTask& task, const AmxBackwardScratch& s, int64_t first_row, int64_t tiles) {
  const Shape& shape = *task.shape;
  const BackwardSizes z = sizes_of(shape);
  const int64_t rows = shape.group * shape.len_q, end_key = task.first_key + task.keys;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t row = first_row + t * kQueries;
    begin_amx_tile(task, s, row, smaller(kQueries, rows - row), s.tiles[t]);
  }
  for (int64_t first = task.first_key, b = 0; first < end_key; first += kKeyBlock, ++b) {
    if (task.cancel.raised(task.cancel.flag)) return false;
    const AmxBackwardBlock block{s.k + b * tiled_operands(kKeyBlock, shape.dim_qk),
                                 s.v + b * tiled_operands(kKeyBlock, shape.dim_v),
                                 s.k_columns + b * tiled_operands(shape.dim_qk, kKeyBlock),
                                 s.common.dk + b * kKeyBlock * z.k_padded,
                                 s.common.dv + b * kKeyBlock * z.v_padded,
                                 first};
    amx_slab_block<Score>(shape, s, tiles, block, wanted_of(task));
  }
  for (int64_t t = 0; t < tiles; ++t) {
    const Interval& seen = s.tiles[t].visible.any;
    write_dq(task, s.common, s.tiles[t], first_row + t * kQueries, seen.begin < end_key && task.first_key < seen.end);
  }
  return true;
}

template <class Score>
bool amx_backward_rows(const BackwardTask& task, const AmxBackwardScratch& s) {
  const Interval rows = rows_of(task);
  for (int64_t row = rows.begin; row < rows.end; row += kAmxSlabTiles * kQueries) {
    const int64_t tiles = smaller(kAmxSlabTiles, divide_up(rows.end - row, kQueries));
    if (!amx_backward_slab<Score>(task, s, row, tiles)) return false;
  }
  return true;
}

template <class Score>
bool amx_backward(const BackwardTask& task) {
  AmxBackwardScratch s{};
  carve(*task.shape, task.keys, static_cast<char*>(task.scratch), s);
  pack_amx_chunk(task, s);
  configure_tiles();
  const bool whole = amx_backward_rows<Score>(task, s);
  release_tiles();
  if (whole) write_key_gradients(task, s.common);
  return whole;
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

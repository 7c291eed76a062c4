// Backward (Dao, "FlashAttention-2", arXiv 2307.08691, section 3.1): P is recomputed from lse, block by block. S, dP
// and dQ have queries in the lanes; dV and dK have head dimensions in the lanes. All five products read the same stored
// P and dS without transposing them. A task owns a chunk of keys with its dK and dV. It visits the query rows in order,
// so sums have a fixed order.
#pragma once

#include "cpu/kernels/score.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

// A multiple of the keys of both kinds of register tile.
constexpr int64_t kBothRows = kTileRows % kDimTileRows == 0 ? kTileRows : kTileRows * kDimTileRows / 2;
static_assert(kKeyBlock % kBothRows == 0 && kBothRows % kTileRows == 0 && kBothRows % kDimTileRows == 0);

constexpr int64_t kSlabBytes = 128 << 10;  // of the query tiles that read a key block while it is in the L2 cache
constexpr int64_t kMaxSlabTiles = 8;

struct BackwardTile {
  Operand* q;          // [dim_qk / kPairs][kQueries], with the scale's sign
  Operand* dout;       // [dim_v / kPairs][kQueries]
  Operand* q_rows;     // [kQueries / kPairs][padded dim_qk]
  Operand* dout_rows;  // [kQueries / kPairs][padded dim_v]
  float* dq;           // [dim_qk][kQueries], not yet multiplied by the scale
  float* lse;          // [kQueries]
  float* delta;        // [kQueries]
  int64_t first_row, rows;
  Visibility visible;
};

struct BackwardScratch {
  BackwardTile* tiles;
  int64_t tile_count;
  Operand* k;              // [block][kKeyBlock / kTileRows][dim_qk / kPairs][kTileRows]
  Operand* v;              // [block][kKeyBlock / kTileRows][dim_v / kPairs][kTileRows]
  Operand* k_columns;      // [block][dim_qk / kTileRows][kKeyBlock / kPairs][kTileRows]
  float* dk;               // [key][padded dim_qk], not yet multiplied by the scale
  float* dv;               // [key][padded dim_v]
  Operand* probabilities;  // [kKeyBlock][kQueries / kPairs]
  float* unrounded;        // [kTileRows][kQueries], fp32 P of one register tile times the score stage's derivative
  Operand* ds;             // [kKeyBlock][kQueries / kPairs]
  Operand* ds_keys;        // [kKeyBlock / kPairs][kQueries]; the same memory as ds if kPairs is 1
  float* rows;             // [larger(kKeyBlock, kQueries)][padded dim]
  float* columns;          // [padded dim][kQueries]
  Operand* out;            // [dim_v / kPairs][kQueries]
};

struct BackwardSizes {
  int64_t k_steps, v_steps, k_padded, v_padded, k_block, v_block, k_columns_block;
};

BackwardSizes sizes_of(const Shape& s) {
  BackwardSizes z{};
  z.k_steps = (s.dim_qk + kPairs - 1) / kPairs;
  z.v_steps = (s.dim_v + kPairs - 1) / kPairs;
  z.k_padded = padded(s.dim_qk);
  z.v_padded = padded(s.dim_v);
  z.k_block = kKeyBlock * z.k_steps;
  z.v_block = kKeyBlock * z.v_steps;
  z.k_columns_block = kKeyBlock / kPairs * round_up(s.dim_qk, kTileRows);
  return z;
}

int64_t carve(const Shape& shape, int64_t keys, char* base, BackwardScratch& s) {
  const BackwardSizes z = sizes_of(shape);
  const int64_t blocks = (keys + kKeyBlock - 1) / kKeyBlock,
                tile_bytes = 5 * kQueries * 4 * larger(z.k_padded, z.v_padded);
  Scratch memory{base, 0};
  s.tile_count = larger(1, smaller(kMaxSlabTiles, kSlabBytes / tile_bytes));
  s.tiles = memory.take<BackwardTile>(s.tile_count);
  s.k = memory.take<Operand>(blocks * z.k_block);
  s.v = memory.take<Operand>(blocks * z.v_block);
  s.k_columns = memory.take<Operand>(blocks * z.k_columns_block);
  s.dk = memory.take<float>(blocks * kKeyBlock * z.k_padded);
  s.dv = memory.take<float>(blocks * kKeyBlock * z.v_padded);
  s.probabilities = memory.take<Operand>(kKeyBlock * kQueries / kPairs);
  s.unrounded = memory.take<float>(kTileRows * kQueries);
  s.ds = memory.take<Operand>(kKeyBlock * kQueries / kPairs);
  s.ds_keys = kPairs > 1 ? memory.take<Operand>(kKeyBlock / kPairs * kQueries) : s.ds;
  s.rows = memory.take<float>(larger(kKeyBlock, kQueries) * larger(z.k_padded, z.v_padded));
  s.columns = memory.take<float>(larger(z.k_padded, z.v_padded) * kQueries);
  s.out = memory.take<Operand>(z.v_padded / kPairs * kQueries);
  for (int64_t t = 0; t < s.tile_count; ++t) {
    BackwardTile tile{};
    tile.q = memory.take<Operand>(z.k_padded / kPairs * kQueries);
    tile.dout = memory.take<Operand>(z.v_padded / kPairs * kQueries);
    tile.q_rows = memory.take<Operand>(kQueries / kPairs * z.k_padded);
    tile.dout_rows = memory.take<Operand>(kQueries / kPairs * z.v_padded);
    tile.dq = memory.take<float>(z.k_padded * kQueries);
    tile.lse = memory.take<float>(kQueries);
    tile.delta = memory.take<float>(kQueries);
    if (base != nullptr) s.tiles[t] = tile;
  }
  return memory.used;
}

// The gradients that the call wants.
struct Wanted {
  bool dq, dk, dv;
  bool ds() const { return dq || dk; }
};

Wanted wanted_of(const BackwardTask& task) {
  return {task.dq.data != nullptr || task.dq_partial != nullptr, task.dk.data != nullptr, task.dv.data != nullptr};
}

void pack_chunk(const BackwardTask& task, const BackwardScratch& s) {
  const Shape& shape = *task.shape;
  const BackwardSizes z = sizes_of(shape);
  const Wanted wanted = wanted_of(task);
  for (int64_t key = 0, block = 0; key < task.keys; key += kKeyBlock, ++block) {
    const int64_t first = task.first_key + key, keys = smaller(kKeyBlock, task.keys - key);
    read_rows(task.k, 1, first, keys, shape.dim_qk, s.rows, kKeyBlock, z.k_padded);
    pack_by_rows<kTileRows>(s.rows, z.k_padded, kKeyBlock, shape.dim_qk, s.k + block * z.k_block);
    if (wanted.dq)
      pack_by_columns(s.rows, z.k_padded, kKeyBlock, shape.dim_qk, kTileRows, s.k_columns + block * z.k_columns_block);
    if (wanted.ds()) {
      read_rows(task.v, 1, first, keys, shape.dim_v, s.rows, kKeyBlock, z.v_padded);
      pack_by_rows<kTileRows>(s.rows, z.v_padded, kKeyBlock, shape.dim_v, s.v + block * z.v_block);
    }
    for (int64_t i = key * z.k_padded; i < (key + kKeyBlock) * z.k_padded; i += kLanes) store(s.dk + i, zero());
    for (int64_t i = key * z.v_padded; i < (key + kKeyBlock) * z.v_padded; i += kLanes) store(s.dv + i, zero());
  }
}

// Reads lse and delta of a tile's queries. Lanes beyond the last row get 0, like their q and dout, so they add nothing.
void read_row_values(const BackwardTask& task, int64_t first_row, BackwardTile& tile) {
  const Shape& shape = *task.shape;
  for (int64_t w = 0; w < kQueries; ++w) {
    tile.lse[w] = tile.delta[w] = 0;
    if (w >= tile.rows) continue;
    const int64_t row = first_row + w;
    const int64_t offset = row_offset(task.lse.head_stride, task.lse.row_stride, shape.group, row);
    const float lse = static_cast<const float*>(task.lse.data)[offset];
    if (task.delta.data != nullptr) {
      const int64_t at = row_offset(task.delta.head_stride, task.delta.row_stride, shape.group, row);
      tile.delta[w] = static_cast<const float*>(task.delta.data)[at];
    }
    if (lse == -kInfinity) {  // a fully masked row
      tile.visible.lane[w] = {0, 0};
      tile.visible.common = {0, 0};
      continue;
    }
    tile.lse[w] = lse;
  }
}

// delta = rowsum(dout * out), summed in the same order as dP. If a row sees one key, out is that key's v, and dP -
// delta is exactly 0.
void sum_delta(const BackwardTask& task, const BackwardScratch& s, int64_t first_row, const BackwardTile& tile) {
  const Shape& shape = *task.shape;
  const BackwardSizes z = sizes_of(shape);
  read_rows(task.out, shape.group, first_row, tile.rows, shape.dim_v, s.rows, kQueries, z.v_padded);
  for (int part = 0; part < kPairs; ++part) {  // as bf16, out is split into its leading half and the rest
    pack_queries(s.rows, z.v_padded, shape.dim_v, s.columns, s.out);
    for (int w = 0; w < kQueries; w += kLanes) {
      Vec sum = zero();
      for (int64_t i = 0; i < z.v_steps; ++i)
        sum = multiply_add(load_operands(s.out + i * kQueries + w), load_operands(tile.dout + i * kQueries + w), sum);
      store(tile.delta + w, part == 0 ? sum : add(load(tile.delta + w), sum));
    }
    for (int64_t i = 0; kPairs > 1 && i < kQueries * z.v_padded; i += kLanes)
      store(s.rows + i, sub(load(s.rows + i), round_to_operand(load(s.rows + i))));
  }
}

void begin_tile(const BackwardTask& task, const BackwardScratch& s, int64_t first_row, int64_t rows,
                BackwardTile& tile) {
  const Shape& shape = *task.shape;
  const BackwardSizes z = sizes_of(shape);
  tile.first_row = first_row;
  tile.rows = rows;
  find_visible(shape, first_row, rows, tile.visible);
  read_row_values(task, first_row, tile);
  read_rows(task.q, shape.group, first_row, rows, shape.dim_qk, s.rows, kQueries, z.k_padded);
  pack_by_columns(s.rows, z.k_padded, kQueries, z.k_padded, z.k_padded, tile.q_rows);
  const Vec sign = broadcast(shape.sign);
  for (int64_t i = 0; i < kQueries * z.k_padded; i += kLanes) store(s.rows + i, mul(load(s.rows + i), sign));
  pack_queries(s.rows, z.k_padded, shape.dim_qk, s.columns, tile.q);
  read_rows(task.dout, shape.group, first_row, rows, shape.dim_v, s.rows, kQueries, z.v_padded);
  pack_by_columns(s.rows, z.v_padded, kQueries, z.v_padded, z.v_padded, tile.dout_rows);
  pack_queries(s.rows, z.v_padded, shape.dim_v, s.columns, tile.dout);
  if (wanted_of(task).ds() && task.delta.data == nullptr) sum_delta(task, s, first_row, tile);
  for (int64_t i = 0; i < round_up(shape.dim_qk, kTileRows) * kQueries; i += kLanes) store(tile.dq + i, zero());
}

// The block of keys that one tile works on. Keys are counted from the block's first key.
struct BackwardBlock {
  const Operand *k, *v, *k_columns;
  float *dk, *dv;
  int64_t begin, end;  // the keys that some lane sees, rounded to register tiles
};

// Computes P and dS of kTileRows keys from `key` on; `first_key` is the block's first key.
template <int N, class Score>
FOVEA_INLINE void recompute_tile(const Shape& shape, const BackwardSizes& z, const BackwardTile& tile,
                                 const BackwardScratch& s, const BackwardBlock& block, int64_t first_key, int64_t key,
                                 const EdgeMask* edge, bool wants_ds) {
  Vec p[kTileRows][N];
  clear(p);
  multiply(p, block.k + key * z.k_steps, 1, kTileRows, tile.q, kQueries, z.k_steps);
  const Probability probability(shape);
  FOVEA_UNROLL for (int n = 0; n < N; ++n) {
    const Vec lse = load(tile.lse + n * kLanes);
    FOVEA_UNROLL for (int m = 0; m < kTileRows; ++m) {
      const ScorePosition position{tile.first_row + n * kLanes, first_key + key + m, false};
      const Vec product = p[m][n];
      p[m][n] = probability(Score::apply(shape, product, position), lse);
      if (edge != nullptr) p[m][n] = select(edge->sees(key + m, n), p[m][n], zero());
      store_query_operands(s.probabilities + (key + m) * (kQueries / kPairs), n * kLanes, p[m][n]);
      store(s.unrounded + m * kQueries + n * kLanes, Score::differentiate(shape, product, p[m][n], position));
    }
  }
  if (!wants_ds) return;
  __asm__ volatile("" : : : "memory");  // keep P in memory: the next product needs all registers
  Vec ds[kTileRows][N];
  clear(ds);
  multiply(ds, block.v + key * z.v_steps, 1, kTileRows, tile.dout, kQueries, z.v_steps);
  FOVEA_UNROLL for (int n = 0; n < N; ++n) {
    const Vec delta = load(tile.delta + n * kLanes);
    FOVEA_UNROLL for (int m = 0; m < kTileRows; m += kPairs) {
      Vec pair[kPairs];
      FOVEA_UNROLL for (int i = 0; i < kPairs; ++i) {
        pair[i] = mul(load(s.unrounded + (m + i) * kQueries + n * kLanes), sub(ds[m + i][n], delta));
        if (edge != nullptr) pair[i] = select(edge->sees(key + m + i, n), pair[i], zero());
        store_query_operands(s.ds + (key + m + i) * (kQueries / kPairs), n * kLanes, pair[i]);
      }
      if (kPairs > 1) store_key_operands(s.ds_keys + (key + m) / kPairs * kQueries + n * kLanes, pair);
    }
  }
}

// sums[key][d] += sum over queries of probabilities[key][query] * rows[query][d], for `vectors` vectors of columns d.
template <int N>
FOVEA_INLINE void add_key_sums(const Operand* probabilities, const Operand* rows, int64_t row_stride, int64_t steps,
                               int64_t begin, int64_t end, int64_t vectors, float* sums) {
  for (; vectors >= N; vectors -= N, rows += N * kLanes, sums += N * kLanes) {
    for (int64_t key = begin; key < end; key += kDimTileRows) {
      Vec x[kDimTileRows][N];
      clear(x);
      multiply(x, probabilities + key * (kQueries / kPairs), kQueries / kPairs, 1, rows, row_stride, steps);
      FOVEA_UNROLL for (int m = 0; m < kDimTileRows; ++m) {
        FOVEA_UNROLL for (int n = 0; n < N; ++n) {
          float* sum = sums + (key + m) * row_stride + n * kLanes;
          store(sum, add(load(sum), x[m][n]));
        }
      }
    }
  }
  if constexpr (N > 1) add_key_sums<N / 2>(probabilities, rows, row_stride, steps, begin, end, vectors, sums);
}

template <int N>
FOVEA_INLINE void add_query_sums(const BackwardTile& tile, const BackwardScratch& s, const BackwardBlock& block,
                                 int64_t dim) {
  const int64_t skipped = block.begin / kPairs, steps = (block.end - block.begin) / kPairs;
  for (int64_t d = 0; d < dim; d += kTileRows) {
    Vec x[kTileRows][N];
    clear(x);
    multiply(x, block.k_columns + d * (kKeyBlock / kPairs) + skipped * kTileRows, 1, kTileRows,
             s.ds_keys + skipped * kQueries, kQueries, steps);
    FOVEA_UNROLL for (int m = 0; m < kTileRows; ++m) {
      FOVEA_UNROLL for (int n = 0; n < N; ++n) {
        float* sum = tile.dq + (d + m) * kQueries + n * kLanes;
        store(sum, add(load(sum), x[m][n]));
      }
    }
  }
}

template <int N, class Score>
__attribute__((noinline)) void backward_block(const Shape& shape, const BackwardTile& tile, const BackwardScratch& s,
                                              BackwardBlock block, int64_t first_key, Wanted wanted) {
  const BackwardSizes z = sizes_of(shape);
  const Interval& any = tile.visible.any;
  block.begin = larger(0, any.begin - first_key) / kBothRows * kBothRows;
  block.end = smaller(kKeyBlock, round_up(any.end - first_key, kBothRows));
  const Interval common{tile.visible.common.begin - first_key, tile.visible.common.end - first_key};
  EdgeMask edge;
  if (block.begin < common.begin || common.end < block.end) edge.set(tile.visible, first_key);
  for (int64_t key = block.begin; key < block.end; key += kTileRows) {
    const bool inside = common.begin <= key && key + kTileRows <= common.end;
    recompute_tile<N, Score>(shape, z, tile, s, block, first_key, key, inside ? nullptr : &edge, wanted.ds());
  }
  constexpr int64_t kSteps = N * kLanes / kPairs;
  if (wanted.dv)
    add_key_sums<kDimTileVectors>(s.probabilities, tile.dout_rows, z.v_padded, kSteps, block.begin, block.end,
                                  z.v_padded / kLanes, block.dv);
  if (wanted.dk)
    add_key_sums<kDimTileVectors>(s.ds, tile.q_rows, z.k_padded, kSteps, block.begin, block.end, z.k_padded / kLanes,
                                  block.dk);
  if (wanted.dq) add_query_sums<N>(tile, s, block, shape.dim_qk);
}

template <class Score>
void backward_tile_block(const Shape& shape, const BackwardTile& tile, const BackwardScratch& s,
                         const BackwardBlock& block, int64_t first_key, Wanted wanted) {
  switch ((tile.rows + kLanes - 1) / kLanes) {
    case 1:
      return backward_block<1, Score>(shape, tile, s, block, first_key, wanted);
    case 2:
      return backward_block<2, Score>(shape, tile, s, block, first_key, wanted);
    default:
      return backward_block<kTileVectors, Score>(shape, tile, s, block, first_key, wanted);
  }
}

// A partial is written only for tiles that see the chunk; reduce_dq reads only those.
void write_dq(const BackwardTask& task, const BackwardScratch& s, const BackwardTile& tile, int64_t first_row,
              bool sees_chunk) {
  const Shape& shape = *task.shape;
  const bool partial = task.dq_partial != nullptr;
  if (!wanted_of(task).dq || (partial && !sees_chunk)) return;
  const int64_t dim = padded(shape.dim_qk);
  transpose(tile.dq, kQueries, shape.dim_qk, tile.rows, s.rows, dim);
  if (partial) {
    const OutputRows rows{task.dq_partial, Element::fp32, 0, shape.dim_qk};
    write_rows(s.rows, dim, 1.0f, rows, 1, first_row, tile.rows, shape.dim_qk, false);
  } else {
    write_rows(s.rows, dim, shape.scale, task.dq, shape.group, first_row, tile.rows, shape.dim_qk, task.accumulate);
  }
}

// Computes all of the chunk's keys against the slab of query tiles that starts at `first_row`.
template <class Score>
bool backward_slab(const BackwardTask& task, const BackwardScratch& s, int64_t first_row, int64_t tiles) {
  const Shape& shape = *task.shape;
  const BackwardSizes z = sizes_of(shape);
  const int64_t rows = shape.group * shape.len_q, end_key = task.first_key + task.keys;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t row = first_row + t * kQueries;
    begin_tile(task, s, row, smaller(kQueries, rows - row), s.tiles[t]);
  }
  for (int64_t first = task.first_key, b = 0; first < end_key; first += kKeyBlock, ++b) {
    if (task.cancel.raised(task.cancel.flag)) return false;
    const BackwardBlock block{s.k + b * z.k_block,
                              s.v + b * z.v_block,
                              s.k_columns + b * z.k_columns_block,
                              s.dk + b * kKeyBlock * z.k_padded,
                              s.dv + b * kKeyBlock * z.v_padded,
                              0,
                              0};
    for (int64_t t = 0; t < tiles; ++t) {
      const Interval& seen = s.tiles[t].visible.any;
      if (seen.begin < first + kKeyBlock && first < seen.end)
        backward_tile_block<Score>(shape, s.tiles[t], s, block, first, wanted_of(task));
    }
  }
  for (int64_t t = 0; t < tiles; ++t) {
    const Interval& seen = s.tiles[t].visible.any;
    write_dq(task, s, s.tiles[t], first_row + t * kQueries, seen.begin < end_key && task.first_key < seen.end);
  }
  return true;
}

// The query rows that the task visits, starting at a whole tile: rows that see its chunk, or all rows if the task
// writes dq itself.
Interval rows_of(const BackwardTask& task) {
  const Shape& shape = *task.shape;
  const int64_t rows = shape.group * shape.len_q;
  if (task.dq.data != nullptr) return {0, rows};
  const int64_t end_key = task.first_key + task.keys;
  const int64_t first = larger(0, task.first_key - shape.window_end + 1),
                end = smaller(shape.len_q, end_key - shape.window_begin);
  return {first * shape.group / kQueries * kQueries, end * shape.group};
}

void write_key_gradients(const BackwardTask& task, const BackwardScratch& s) {
  const Shape& shape = *task.shape;
  const BackwardSizes z = sizes_of(shape);
  if (task.dk.data != nullptr)
    write_rows(s.dk, z.k_padded, shape.scale, task.dk, 1, task.first_key, task.keys, shape.dim_qk, task.accumulate);
  if (task.dv.data != nullptr)
    write_rows(s.dv, z.v_padded, 1.0f, task.dv, 1, task.first_key, task.keys, shape.dim_v, task.accumulate);
}

template <class Score>
bool backward(const BackwardTask& task) {
  BackwardScratch s;
  carve(*task.shape, task.keys, static_cast<char*>(task.scratch), s);
  pack_chunk(task, s);
  const Interval rows = rows_of(task);
  for (int64_t row = rows.begin; row < rows.end; row += s.tile_count * kQueries) {
    const int64_t tiles = smaller(s.tile_count, (rows.end - row + kQueries - 1) / kQueries);
    if (!backward_slab<Score>(task, s, row, tiles)) return false;
  }
  write_key_gradients(task, s);
  return true;
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

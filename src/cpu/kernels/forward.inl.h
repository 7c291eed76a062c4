// Forward: online softmax over key blocks (Dao et al., "FlashAttention", arXiv 2205.14135, algorithm 1). Scores are
// transposed: S^T has one key per row and queries in the lanes. P of one key block stays in the L1 cache. The output
// accumulates as [head dimension][query]. A lane's maximum rises only when a score exceeds it by more than 8 (in log2).
// Each lane decides alone, so a query's result depends only on that query's keys.
#pragma once

#include "cpu/kernels/score.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

struct ForwardTile {
  Operand* q;      // [dim_qk / kPairs][kQueries]
  float* out;      // [dim_v][kQueries], not yet divided by sum
  float* maximum;  // [kQueries], subtracted from unscaled scores; 0 before the first score
  float* limit;    // [kQueries], the maximum rises if a score exceeds it; -infinity before the first score
  float* sum;      // [kQueries], of P as stored for the product with V; out is divided by it
  float* exact;    // [kQueries], sum of P before rounding to bf16, for lse; null if P is not rounded
  int64_t first_row, rows;
  Visibility visible;
};

struct ForwardScratch {
  ForwardTile* tiles;
  Operand* probabilities;  // [kKeyBlock / kPairs][kQueries]
  float* rows;             // [larger(kKeyBlock, kQueries)][padded dim]
  float* columns;          // [padded dim][kQueries]
  Operand* k;              // one packed block, if the task packs its own
  Operand* v;
  float* block_sum;    // [kQueries], of stored P of this block
  float* block_exact;  // [kQueries], of this block's P before rounding; null if P is not rounded
  float* factor;       // [kQueries], rescale factor of the earlier blocks' output and sums
};

int64_t operands_of_k(const Shape& s) { return kKeyBlock * ((s.dim_qk + kPairs - 1) / kPairs); }
int64_t operands_of_v(const Shape& s) { return kKeyBlock / kPairs * round_up(s.dim_v, kTileRows); }

int64_t carve(const Shape& shape, int64_t rows, bool packs_itself, char* base, ForwardScratch& s) {
  Scratch memory{base, 0};
  const int64_t tiles = (rows + kQueries - 1) / kQueries;
  s.tiles = memory.take<ForwardTile>(tiles);
  s.probabilities = memory.take<Operand>(kKeyBlock / kPairs * kQueries);
  s.rows = memory.take<float>(larger(kKeyBlock, kQueries) * padded(larger(shape.dim_qk, shape.dim_v)));
  s.columns = memory.take<float>(padded(shape.dim_qk) * kQueries);
  s.k = packs_itself ? memory.take<Operand>(operands_of_k(shape)) : nullptr;
  s.v = packs_itself ? memory.take<Operand>(operands_of_v(shape)) : nullptr;
  s.block_sum = memory.take<float>(kQueries);
  s.block_exact = kBf16Dot ? memory.take<float>(kQueries) : nullptr;
  s.factor = memory.take<float>(kQueries);
  for (int64_t t = 0; t < tiles; ++t) {
    ForwardTile tile{};
    tile.q = memory.take<Operand>(padded(shape.dim_qk) / kPairs * kQueries);
    tile.out = memory.take<float>(padded(shape.dim_v) * kQueries);
    tile.maximum = memory.take<float>(kQueries);
    tile.limit = memory.take<float>(kQueries);
    tile.sum = memory.take<float>(kQueries);
    tile.exact = kBf16Dot ? memory.take<float>(kQueries) : nullptr;
    if (base != nullptr) s.tiles[t] = tile;
  }
  return memory.used;
}

// The state before the first key.
void clear_tile(const Shape& shape, ForwardTile& tile) {
  for (int64_t i = 0; i < padded(shape.dim_v) * kQueries; i += kLanes) store(tile.out + i, zero());
  for (int w = 0; w < kQueries; w += kLanes) {
    store(tile.maximum + w, zero());
    store(tile.limit + w, broadcast(-kInfinity));
    store(tile.sum + w, zero());
    if (kBf16Dot) store(tile.exact + w, zero());
  }
}

void begin_tile(const ForwardTask& task, const ForwardScratch& s, int64_t first_row, int64_t rows, ForwardTile& tile) {
  const Shape& shape = *task.shape;
  tile.first_row = first_row;
  tile.rows = rows;
  find_visible(shape, first_row, rows, tile.visible);
  const int64_t dim = padded(shape.dim_qk);
  read_rows(task.q, shape.group, first_row, rows, shape.dim_qk, s.rows, kQueries, dim);
  const Vec sign = broadcast(shape.sign);
  for (int64_t i = 0; i < kQueries * dim; i += kLanes) store(s.rows + i, mul(load(s.rows + i), sign));
  pack_queries(s.rows, dim, shape.dim_qk, s.columns, tile.q);
  clear_tile(shape, tile);
}

// Raises the maximum in lanes with a score above the limit, and rescales: P of this block's keys [begin, end) here, the
// output of earlier blocks when this block's output is added.
__attribute__((noinline)) void raise_maximum(const Shape& shape, const ForwardTile& tile, const ForwardScratch& s,
                                             int n, Vec largest, int64_t begin, int64_t end) {
  const int w = n * kLanes;
  const Vec old = load(tile.maximum + w), limit = load(tile.limit + w);
  const Exponential exponential(shape.log2_scale);
  const Mask raised = less(limit, largest);
  Vec lower = select(raised, exponential(sub(old, largest)), broadcast(1.0f));
  lower = select(both(raised, less(limit, broadcast(-3.4e38f))), zero(), lower);  // the first score: nothing to rescale
  store(tile.maximum + w, select(raised, largest, old));
  store(tile.limit + w, select(raised, add(largest, div(broadcast(kRescaleThreshold), exponential.factor)), limit));
  store(s.factor + w, mul(load(s.factor + w), lower));
  if (kBf16Dot) store(s.block_exact + w, mul(load(s.block_exact + w), lower));
  Vec sum = zero();
  for (int64_t r = begin; r < end; r += kPairs)
    sum = rescale_key_operands(s.probabilities + r / kPairs * kQueries + w, lower, sum);
  store(s.block_sum + w, sum);
}

// A key block as packed for this loop, and as rows of K and V. S = K Q reads K by key and dimension, O += V P reads V
// by dimension and key.
struct PackedKeys {
  const Operand* k;
  const Operand* v;
  static constexpr int kOutputRows = kTileRows;

  template <int M, int N>
  FOVEA_INLINE void scores(Vec (&x)[M][N], int64_t key, const Operand* q, int64_t steps) const {
    multiply(x, k + key * steps, 1, kTileRows, q, kQueries, steps);
  }
  template <int M, int N>
  FOVEA_INLINE void output(Vec (&x)[M][N], int64_t d, int64_t key, const Operand* p, int64_t steps) const {
    multiply(x, v + d * (kKeyBlock / kPairs) + key / kPairs * kTileRows, 1, kTileRows, p, kQueries, steps);
  }
};

// Online softmax of kTileRows keys from `key` on: scores, then P. `key` is counted from `first_key`, the block's first.
template <int N, class Score, class Keys>
FOVEA_INLINE void softmax_tile(const Shape& shape, const ForwardTile& tile, const ForwardScratch& s, const Keys& keys,
                               int64_t first_key, int64_t begin, int64_t key, const EdgeMask* edge) {
  const int64_t steps = (shape.dim_qk + kPairs - 1) / kPairs;
  Vec x[kTileRows][N];
  clear(x);
  keys.scores(x, key, tile.q, steps);
  FOVEA_UNROLL for (int m = 0; m < kTileRows; ++m) {
    FOVEA_UNROLL for (int n = 0; n < N; ++n) {
      x[m][n] = Score::apply(shape, x[m][n], {tile.first_row + n * kLanes, first_key + key + m, false});
    }
  }
  if (edge != nullptr) {
    FOVEA_UNROLL for (int m = 0; m < kTileRows; ++m) {
      FOVEA_UNROLL for (int n = 0; n < N; ++n) {
        x[m][n] = select(edge->sees(key + m, n), x[m][n], broadcast(-kInfinity));
      }
    }
  }
  FOVEA_UNROLL for (int n = 0; n < N; ++n) {
    Vec largest = x[0][n];
    FOVEA_UNROLL for (int m = 1; m < kTileRows; ++m) largest = max(largest, x[m][n]);
    if (__builtin_expect(any(less(load(tile.limit + n * kLanes), largest)), 0))
      raise_maximum(shape, tile, s, n, largest, begin, key);
  }
  const Exponential exponential(shape.log2_scale);
  Operand* probabilities = s.probabilities + key / kPairs * kQueries;
  FOVEA_UNROLL for (int n = 0; n < N; ++n) {
    const Vec maximum = load(tile.maximum + n * kLanes);
    Vec sum = load(s.block_sum + n * kLanes), exact = kBf16Dot ? load(s.block_exact + n * kLanes) : sum;
    FOVEA_UNROLL for (int m = 0; m < kTileRows; m += kPairs) {
      Vec p[kPairs];
      FOVEA_UNROLL for (int i = 0; i < kPairs; ++i) {
        p[i] = exponential(sub(x[m + i][n], maximum));  // exactly 1 at the maximum
        if (edge != nullptr) p[i] = select(edge->sees(key + m + i, n), p[i], zero());
        if (kBf16Dot) exact = add(exact, p[i]);
      }
      sum = add_operands(sum, store_key_operands(probabilities + m / kPairs * kQueries + n * kLanes, p));
    }
    store(s.block_sum + n * kLanes, sum);
    if (kBf16Dot) store(s.block_exact + n * kLanes, exact);
  }
}

// One query tile against the key block that starts at `first_key`; N vectors hold queries.
template <int N, class Score, class Keys>
__attribute__((noinline)) void forward_block(const Shape& shape, ForwardTile& tile, const ForwardScratch& s,
                                             const Keys& keys, int64_t first_key) {
  const int64_t begin = larger(0, tile.visible.any.begin - first_key) / kTileRows * kTileRows;
  const int64_t end = smaller(kKeyBlock, round_up(tile.visible.any.end - first_key, kTileRows));
  const Interval common{tile.visible.common.begin - first_key, tile.visible.common.end - first_key};
  EdgeMask edge;
  if (begin < common.begin || common.end < end) edge.set(tile.visible, first_key);
  FOVEA_UNROLL for (int n = 0; n < N; ++n) {
    store(s.block_sum + n * kLanes, zero());
    if (kBf16Dot) store(s.block_exact + n * kLanes, zero());
    store(s.factor + n * kLanes, broadcast(1.0f));
  }
  for (int64_t key = begin; key < end; key += kTileRows) {
    const bool inside = common.begin <= key && key + kTileRows <= common.end;
    softmax_tile<N, Score>(shape, tile, s, keys, first_key, begin, key, inside ? nullptr : &edge);
  }
  const int64_t steps = (end - begin) / kPairs;
  for (int64_t d = 0; d < shape.dim_v; d += Keys::kOutputRows) {
    Vec x[Keys::kOutputRows][N];
    clear(x);
    keys.output(x, d, begin, s.probabilities + begin / kPairs * kQueries, steps);
    FOVEA_UNROLL for (int n = 0; n < N; ++n) {
      const Vec factor = load(s.factor + n * kLanes);
      FOVEA_UNROLL for (int m = 0; m < Keys::kOutputRows; ++m) {
        float* out = tile.out + (d + m) * kQueries + n * kLanes;
        store(out, fma(load(out), factor, x[m][n]));
      }
    }
  }
  FOVEA_UNROLL for (int n = 0; n < N; ++n) {
    const Vec factor = load(s.factor + n * kLanes);
    float* sum = tile.sum + n * kLanes;
    store(sum, fma(load(sum), factor, load(s.block_sum + n * kLanes)));
    if (!kBf16Dot) continue;
    float* exact = tile.exact + n * kLanes;
    store(exact, fma(load(exact), factor, load(s.block_exact + n * kLanes)));
  }
}

// Epilogue: out and lse of each query from its maximum, sum and accumulated output.
void finalize_tile(const ForwardTask& task, const ForwardScratch& s, const ForwardTile& tile, int64_t first_row) {
  const Shape& shape = *task.shape;
  for (int64_t w = 0; w < tile.rows; ++w) {
    const bool fully_masked = tile.visible.lane[w].begin >= tile.visible.lane[w].end;
    const float lse = log_sum(shape, tile.maximum[w], kBf16Dot ? tile.exact[w] : tile.sum[w]);
    if (task.lse.data != nullptr) {
      const int64_t offset = row_offset(task.lse.head_stride, task.lse.row_stride, shape.group, first_row + w);
      static_cast<float*>(task.lse.data)[offset] = fully_masked ? -kInfinity : lse;
    }
    if (fully_masked) tile.sum[w] = 1.0f;  // its accumulated output is zero
  }
  for (int64_t d = 0; d < shape.dim_v; ++d) {
    for (int n = 0; n < kTileVectors; ++n) {
      float* out = tile.out + d * kQueries + n * kLanes;
      store(out, div(load(out), load(tile.sum + n * kLanes)));
    }
  }
  const int64_t dim = padded(shape.dim_v);
  transpose(tile.out, kQueries, shape.dim_v, tile.rows, s.rows, dim);
  write_rows(s.rows, dim, 1.0f, task.out, shape.group, first_row, tile.rows, shape.dim_v, false);
}

void pack_block(const Shape& shape, const InputRows& k, const InputRows& v, int64_t first_key, float* rows,
                Operand* packed_k, Operand* packed_v) {
  const int64_t keys = smaller(kKeyBlock, shape.len_k - first_key);
  read_rows(k, 1, first_key, keys, shape.dim_qk, rows, kKeyBlock, padded(shape.dim_qk));
  pack_by_rows<kTileRows>(rows, padded(shape.dim_qk), kKeyBlock, shape.dim_qk, packed_k);
  read_rows(v, 1, first_key, keys, shape.dim_v, rows, kKeyBlock, padded(shape.dim_v));
  pack_by_columns(rows, padded(shape.dim_v), kKeyBlock, shape.dim_v, kTileRows, packed_v);
}

template <class Score>
void forward_tile_block(const Shape& shape, ForwardTile& tile, const ForwardScratch& s, const PackedKeys& keys,
                        int64_t first_key) {
  switch ((tile.rows + kLanes - 1) / kLanes) {
    case 1:
      return forward_block<1, Score>(shape, tile, s, keys, first_key);
    case 2:
      return forward_block<2, Score>(shape, tile, s, keys, first_key);
    default:
      return forward_block<kTileVectors, Score>(shape, tile, s, keys, first_key);
  }
}

template <class Score>
bool forward(const ForwardTask& task) {
  const Shape& shape = *task.shape;
  ForwardScratch s;
  carve(shape, task.rows, task.packed_k == nullptr, static_cast<char*>(task.scratch), s);
  const int64_t tiles = (task.rows + kQueries - 1) / kQueries;
  Interval any{shape.len_k, 0};
  for (int64_t t = 0; t < tiles; ++t) {
    begin_tile(task, s, task.first_row + t * kQueries, smaller(kQueries, task.rows - t * kQueries), s.tiles[t]);
    any = {smaller(any.begin, s.tiles[t].visible.any.begin), larger(any.end, s.tiles[t].visible.any.end)};
  }
  for (int64_t block = any.begin / kKeyBlock; block * kKeyBlock < any.end; ++block) {
    if (task.cancel.raised(task.cancel.flag)) return false;
    const int64_t first_key = block * kKeyBlock;
    const Operand* k = static_cast<const Operand*>(task.packed_k) + block * operands_of_k(shape);
    const Operand* v = static_cast<const Operand*>(task.packed_v) + block * operands_of_v(shape);
    if (task.packed_k == nullptr) {
      pack_block(shape, task.k, task.v, first_key, s.rows, s.k, s.v);
      k = s.k;
      v = s.v;
    }
    for (int64_t t = 0; t < tiles; ++t) {
      const Interval& seen = s.tiles[t].visible.any;
      if (seen.begin < first_key + kKeyBlock && first_key < seen.end)
        forward_tile_block<Score>(shape, s.tiles[t], s, {k, v}, first_key);
    }
  }
  for (int64_t t = 0; t < tiles; ++t) finalize_tile(task, s, s.tiles[t], task.first_row + t * kQueries);
  return true;
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

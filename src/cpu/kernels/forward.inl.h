// Forward: online softmax over key blocks (Dao et al., "FlashAttention", arXiv 2205.14135, algorithm 1). Scores are
// transposed: S^T has one key per row and queries in the lanes. P of one key block stays in the L1 cache. The output
// accumulates as [head dimension][query]. A lane's maximum rises only when a score exceeds it by more than 8 (in log2).
// Each lane decides alone, so a query's result depends only on that query's keys.
#pragma once

#include "cpu/kernels/exponential.inl.h"
#include "cpu/kernels/panels.inl.h"
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
  float* rows;             // [kQueries][padded dim]
  float* columns;          // [padded dim][kQueries]
  Operand* k;              // one packed block, if the task packs its own
  Operand* v;
  float* block_sum;    // [kQueries], of stored P of this block
  float* block_exact;  // [kQueries], of this block's P before rounding; null if P is not rounded
  float* factor;       // [kQueries], rescale factor of the earlier blocks' output and sums
};

int64_t key_steps(const Shape& s) { return steps_of(s.dim_qk); }  // of a panel of K
int64_t operands_of_k(const Shape& s) { return kKeyBlock * key_steps(s); }
int64_t operands_of_v(const Shape& s) { return kKeyBlock / kPairs * round_up(s.dim_v, kTileRows); }

int64_t carve(const Shape& shape, int64_t rows, bool packs_itself, char* base, ForwardScratch& s) {
  Scratch memory{base, 0};
  const int64_t tiles = (rows + kQueries - 1) / kQueries;
  s.tiles = memory.take<ForwardTile>(tiles);
  s.probabilities = memory.take<Operand>(kKeyBlock / kPairs * kQueries);
  s.rows = memory.take<float>(kQueries * padded(larger(shape.dim_qk, shape.dim_v)));
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

void begin_tile(const ForwardTask& task, const ForwardScratch& s, int64_t first_row, int64_t rows, ForwardTile& tile) {
  const Shape& shape = *task.shape;
  tile.first_row = first_row;
  tile.rows = rows;
  find_visible(shape, first_row, rows, tile.visible);
  if (shape.group == 1) {
    const int64_t steps = key_steps(shape);
    for (int64_t i = 0; i < steps; i += kLanes) {
      for (int64_t w = 0; w < kQueries; w += kLanes)
        pack_square<kQueries, kLanes>(task.q, first_row + w, rows - w, i * kPairs, shape.dim_qk, steps - i,
                                      tile.q + i * kQueries + w);
    }
  } else {
    const int64_t dim = padded(shape.dim_qk);
    read_rows(task.q, shape.group, first_row, rows, shape.dim_qk, s.rows, kQueries, dim);
    pack_queries(s.rows, dim, shape.dim_qk, s.columns, tile.q);
  }
  if (shape.sign != 1) {
    for (int64_t i = 0; i < (shape.dim_qk + kPairs - 1) / kPairs * kQueries; i += kLanes)
      rescale_key_operands(tile.q + i, broadcast(shape.sign), zero());
  }
  for (int64_t i = 0; i < round_up(shape.dim_v, kTileRows) * kQueries; i += kLanes) store(tile.out + i, zero());
  for (int w = 0; w < kQueries; w += kLanes) {
    store(tile.maximum + w, zero());
    store(tile.limit + w, broadcast(-kInfinity));
    store(tile.sum + w, zero());
    if (kBf16Dot) store(tile.exact + w, zero());
  }
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
  int64_t k_steps;  // of a panel of K
  static constexpr int kOutputRows = kTileRows;

  template <int M, int N>
  FOVEA_INLINE void scores(Vec (&x)[M][N], int64_t key, const Operand* q, int64_t steps) const {
    multiply(x, k + key * k_steps, 1, kTileRows, q, kQueries, steps);
  }
  template <int M, int N>
  FOVEA_INLINE void output(Vec (&x)[M][N], int64_t d, int64_t key, const Operand* p, int64_t steps) const {
    multiply(x, v + d * (kKeyBlock / kPairs) + key / kPairs * kTileRows, 1, kTileRows, p, kQueries, steps);
  }
};

// Online softmax of kTileRows keys from `key` on: scores, then P. `key` is counted from `first_key`, the block's first.
// With kEdge, some lanes do not see some of the keys.
template <int N, bool kEdge, class Score, class Keys>
FOVEA_INLINE void softmax_tile(const Shape& shape, const ForwardTile& tile, const ForwardScratch& s, const Keys& keys,
                               int64_t first_key, int64_t begin, int64_t key, const EdgeMask& edge) {
  const int64_t steps = (shape.dim_qk + kPairs - 1) / kPairs;
  Vec x[kTileRows][N];
  clear(x);
  keys.scores(x, key, tile.q, steps);
  FOVEA_UNROLL for (int m = 0; m < kTileRows; ++m) {
    FOVEA_UNROLL for (int n = 0; n < N; ++n) {
      x[m][n] = Score::apply(shape, x[m][n], {tile.first_row + n * kLanes, first_key + key + m, false});
      if (kEdge) x[m][n] = select(edge.sees(key + m, n), x[m][n], broadcast(-kInfinity));
    }
  }
  FOVEA_UNROLL for (int n = 0; n < N; ++n) {
    Vec largest = x[0][n];
    FOVEA_UNROLL for (int m = 1; m < kTileRows; ++m) largest = max(largest, x[m][n]);
    if (__builtin_expect(any(less(load(tile.limit + n * kLanes), largest)), 0))
      raise_maximum(shape, tile, s, n, largest, begin, key);
  }
  const Vec factor = broadcast(shape.log2_scale);
  Vec sum[N], exact[N];
  FOVEA_UNROLL for (int n = 0; n < N; ++n) {
    sum[n] = load(s.block_sum + n * kLanes);
    exact[n] = kBf16Dot ? load(s.block_exact + n * kLanes) : zero();
  }
  FOVEA_UNROLL for (int m = 0; m < kTileRows; m += kPairs) {
    Vec p[N * kPairs];
    FOVEA_UNROLL for (int n = 0; n < N; ++n) {
      const Vec maximum = load(tile.maximum + n * kLanes);
      FOVEA_UNROLL for (int i = 0; i < kPairs; ++i) p[n * kPairs + i] = sub(x[m + i][n], maximum);
    }
    exp2_each(p, factor);
    Operand* const to = s.probabilities + (key + m) / kPairs * kQueries;
    FOVEA_UNROLL for (int n = 0; n < N; ++n) {
      FOVEA_UNROLL for (int i = 0; i < kPairs; ++i) {
        Vec& each = p[n * kPairs + i];
        if (kEdge) each = select(edge.sees(key + m + i, n), each, zero());
        if (kBf16Dot) exact[n] = add(exact[n], each);
      }
      sum[n] = add_operands(sum[n], store_key_operands(to + n * kLanes, p + n * kPairs));
    }
  }
  FOVEA_UNROLL for (int n = 0; n < N; ++n) {
    store(s.block_sum + n * kLanes, sum[n]);
    if (kBf16Dot) store(s.block_exact + n * kLanes, exact[n]);
  }
}

// Multiplies the output of earlier blocks by `factor` where that is not 1; it seldom is not.
template <int N>
FOVEA_INLINE void rescale_output(const Shape& shape, const ForwardTile& tile, const ForwardScratch& s) {
  for (int n = 0; n < N; ++n) {
    const Vec factor = load(s.factor + n * kLanes);
    if (__builtin_expect(!any(less(factor, broadcast(1.0f))), 1)) continue;
    float* out = tile.out + n * kLanes;
    for (int64_t d = 0; d < shape.dim_v; ++d, out += kQueries) store(out, mul(load(out), factor));
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
    if (inside)
      softmax_tile<N, false, Score>(shape, tile, s, keys, first_key, begin, key, edge);
    else
      softmax_tile<N, true, Score>(shape, tile, s, keys, first_key, begin, key, edge);
  }
  rescale_output<N>(shape, tile, s);
  const int64_t steps = (end - begin) / kPairs;
  for (int64_t d = 0; d < shape.dim_v; d += Keys::kOutputRows) {
    Vec x[Keys::kOutputRows][N];
    clear(x);
    keys.output(x, d, begin, s.probabilities + begin / kPairs * kQueries, steps);
    FOVEA_UNROLL for (int m = 0; m < Keys::kOutputRows; ++m) {
      FOVEA_UNROLL for (int n = 0; n < N; ++n) {
        float* out = tile.out + (d + m) * kQueries + n * kLanes;
        store(out, add(load(out), x[m][n]));
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

// Divides the accumulated output of `rows` queries by `sum`, and writes it as rows of out; `from` is [dim][kQueries].
FOVEA_INLINE void write_output(const float* from, const float* sum, const OutputRows& to, int64_t group,
                               int64_t first_row, int64_t rows, int64_t dim) {
  int64_t offsets[kLanes];
  for (int64_t r = 0; r < rows; ++r) offsets[r] = row_offset(to.head_stride, to.row_stride, group, first_row + r);
  const Vec divisor = load(sum);
  for (int64_t d = 0; d < dim; d += kLanes) {
    Vec x[kLanes];
    FOVEA_UNROLL for (int i = 0; i < kLanes; ++i) x[i] = div(load(from + (d + i) * kQueries), divisor);
    transpose_square<1>(x);
    alignas(64) float lines[kLanes * kLanes];
    FOVEA_UNROLL for (int i = 0; i < kLanes; ++i) store(lines + i * kLanes, x[i]);
    for (int64_t r = 0; r < rows; ++r) {
      const Vec row = load(lines + r * kLanes);
      if (d + kLanes <= dim)
        store_converted(to.data, to.element, offsets[r] + d, row);
      else
        store_tail(to.data, to.element, offsets[r] + d, dim - d, row);
    }
  }
}

// Epilogue: out and lse of each query from its maximum, sum and accumulated output.
void finalize_tile(const ForwardTask& task, const ForwardTile& tile, int64_t first_row) {
  const Shape& shape = *task.shape;
  for (int64_t w = 0; w < tile.rows; ++w) {
    const bool fully_masked = tile.visible.lane[w].begin >= tile.visible.lane[w].end;
    if (task.lse.data != nullptr) {
      const float lse = log_sum(shape, tile.maximum[w], kBf16Dot ? tile.exact[w] : tile.sum[w]);
      const int64_t offset = row_offset(task.lse.head_stride, task.lse.row_stride, shape.group, first_row + w);
      static_cast<float*>(task.lse.data)[offset] = fully_masked ? -kInfinity : lse;
    }
    if (fully_masked) tile.sum[w] = 1.0f;  // its accumulated output is zero
  }
  for (int64_t w = 0; w < tile.rows; w += kLanes)
    write_output(tile.out + w, tile.sum + w, task.out, shape.group, first_row + w, smaller(kLanes, tile.rows - w),
                 shape.dim_v);
}

template <int kFirst, int... kLane>
FOVEA_INLINE auto lanes_from(Vec x, LaneList<kLane...>) {
  return __builtin_shufflevector(x, x, (kFirst + kLane)...);
}

// Stores kTileRows lanes of x from lane kFirst on, the next ones `panel` operands later, and so on up to lane `count`.
template <int kFirst>
FOVEA_INLINE void store_to_panels(Operand* to, int64_t panel, OperandVec x, int64_t count) {
  if (kFirst >= count) return;
  const auto part = lanes_from<kFirst>(reinterpret_cast<Vec>(x), typename CountedLanes<kTileRows>::List{});
  __builtin_memcpy(to, &part, sizeof part);
  if constexpr (kFirst + kTileRows < kLanes) store_to_panels<kFirst + kTileRows>(to + panel, panel, x, count);
}

// Packs V as [dim_v / kTileRows][kKeyBlock / kPairs][kTileRows]. Keys from `keys` on are zero.
template <Element kElement>
void pack_values(const InputRows& v, int64_t first_key, int64_t keys, int64_t dim, Operand* to) {
  constexpr int64_t kWidth = kElement == Element::fp32 ? 4 : 2, kPanel = kKeyBlock / kPairs * kTileRows;
  const int64_t stride = v.row_stride * kWidth;
  alignas(64) char rows[2][kLanes * 4];
  const char* from = static_cast<const char*>(v.data) + first_key * stride;
  for (int64_t key = 0; key < kKeyBlock; key += kPairs, from += kPairs * stride, to += kTileRows) {
    for (int64_t d = 0; d < dim; d += kLanes) {
      const char *row = from + d * kWidth, *next = row + stride;
      if (d + kLanes > dim || key + kPairs > keys) {
        const auto bytes = static_cast<uint64_t>(smaller(kLanes, dim - d) * kWidth);
        __builtin_memset(rows, 0, sizeof rows);
        if (key < keys) __builtin_memcpy(rows[0], row, bytes);
        if (key + 1 < keys && kPairs > 1) __builtin_memcpy(rows[1], next, bytes);
        row = rows[0], next = rows[1];
      }
      store_to_panels<0>(to + d / kTileRows * kPanel, kPanel, load_key_operands<kElement>(row, next), dim - d);
    }
  }
}

void pack_block(const Shape& shape, const InputRows& k, const InputRows& v, int64_t first_key, Operand* packed_k,
                Operand* packed_v) {
  const int64_t keys = smaller(kKeyBlock, shape.len_k - first_key);
  for (int64_t r = 0; r < kKeyBlock; r += kTileRows, packed_k += key_steps(shape) * kTileRows)
    pack_rows<kTileRows>(k, first_key + r, larger(0, smaller(kTileRows, keys - r)), shape.dim_qk, packed_k);
  if constexpr (kBf16Dot) {
    pack_values<Element::bf16>(v, first_key, keys, shape.dim_v, packed_v);
  } else if (v.element == Element::fp32) {
    pack_values<Element::fp32>(v, first_key, keys, shape.dim_v, packed_v);
  } else if (v.element == Element::bf16) {
    pack_values<Element::bf16>(v, first_key, keys, shape.dim_v, packed_v);
  } else {
    pack_values<Element::fp16>(v, first_key, keys, shape.dim_v, packed_v);
  }
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
      pack_block(shape, task.k, task.v, first_key, s.k, s.v);
      k = s.k;
      v = s.v;
    }
    for (int64_t t = 0; t < tiles; ++t) {
      const Interval& seen = s.tiles[t].visible.any;
      if (seen.begin < first_key + kKeyBlock && first_key < seen.end)
        forward_tile_block<Score>(shape, s.tiles[t], s, {k, v, key_steps(shape)}, first_key);
    }
  }
  for (int64_t t = 0; t < tiles; ++t) finalize_tile(task, s.tiles[t], task.first_row + t * kQueries);
  return true;
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

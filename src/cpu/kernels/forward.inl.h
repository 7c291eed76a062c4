// Forward: online softmax over key blocks (Dao et al., "FlashAttention", arXiv 2205.14135, algorithm 1). Scores are
// transposed: S^T has one key per row and queries in the lanes. P of one key block stays in the L1 cache. The output
// accumulates as [head dimension][query]. A lane's maximum rises only when a score exceeds it by more than 8 (in log2).
// Each lane decides alone, so a query's result depends only on that query's keys.
#pragma once

#include "cpu/kernels/exponential.inl.h"
#include "cpu/kernels/pack_keys.inl.h"
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
  clear_tile(shape, tile);
}

// Raises the maximum in lanes with a score above the limit, and rescales: P of this block's keys [begin, end) here, the
// output of earlier blocks when this block's output is added.
__attribute__((noinline)) void raise_maximum(const Shape& shape, const ForwardTile& tile, const ForwardScratch& s,
                                             int n, Vec largest, int64_t begin, int64_t end) {
  const int w = n * kLanes;
  const Vec old = load(tile.maximum + w), limit = load(tile.limit + w);
  const Exponential exponential(shape.log2_scale), exponential_of_log2(1.0f);
  const Mask raised = less(limit, largest);
  const Vec rescaled = fuses_scale(shape)
                           ? exponential_of_log2(sub(mul(old, exponential.factor), mul(largest, exponential.factor)))
                           : exponential(sub(old, largest));
  Vec lower = select(raised, rescaled, broadcast(1.0f));
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

// The vectors of a query tile from kFirstVector to kEndVector. With kMasked, some lanes do not see some of the keys.
template <int kFirstVector, int kEndVector, bool kMasked>
struct TilePart {
  static constexpr int kFirst = kFirstVector, kCount = kEndVector - kFirstVector;
  static constexpr bool kEdge = kMasked;
  static constexpr int lane(int n) { return (kFirst + n) * kLanes; }
};

// Online softmax of kTileRows keys from `key` on: scores, then P. `key` is counted from `first_key`, the block's first.
template <class Part, class Score, class Keys>
FOVEA_INLINE void softmax_tile(const Shape& shape, const ForwardTile& tile, const ForwardScratch& s, const Keys& keys,
                               int64_t first_key, int64_t begin, int64_t key, const EdgeMask& edge) {
  constexpr int N = Part::kCount;
  Vec x[kTileRows][N];
  clear(x);
  keys.scores(x, key, tile.q + Part::lane(0), (shape.dim_qk + kPairs - 1) / kPairs);
  FOVEA_UNROLL for (int m = 0; m < kTileRows; ++m) {
    FOVEA_UNROLL for (int n = 0; n < N; ++n) {
      x[m][n] = Score::apply(shape, x[m][n], {tile.first_row + Part::lane(n), first_key + key + m, 1});
      if (Part::kEdge) x[m][n] = select(edge.sees(key + m, Part::kFirst + n), x[m][n], broadcast(-kInfinity));
    }
  }
  FOVEA_UNROLL for (int n = 0; n < N; ++n) {
    Vec largest = x[0][n];
    FOVEA_UNROLL for (int m = 1; m < kTileRows; ++m) largest = max(largest, x[m][n]);
    if (__builtin_expect(any(less(load(tile.limit + Part::lane(n)), largest)), 0))
      raise_maximum(shape, tile, s, Part::kFirst + n, largest, begin, key);
  }
  const bool fused = fuses_scale(shape);
  const Vec factor = broadcast(shape.log2_scale);
  Vec sum[N], exact[N], shift[N];
  FOVEA_UNROLL for (int n = 0; n < N; ++n) {
    const Vec maximum = load(tile.maximum + Part::lane(n));
    shift[n] = fused ? mul(maximum, factor) : maximum;
    sum[n] = load(s.block_sum + Part::lane(n));
    exact[n] = kBf16Dot ? load(s.block_exact + Part::lane(n)) : zero();
  }
  FOVEA_UNROLL for (int m = 0; m < kTileRows; m += kPairs) {
    Vec p[N * kPairs];
    FOVEA_UNROLL for (int n = 0; n < N; ++n) {
      FOVEA_UNROLL for (int i = 0; i < kPairs; ++i) {
        const Vec score = x[m + i][n];
        p[n * kPairs + i] = fused ? fms(score, factor, shift[n]) : mul(sub(score, shift[n]), factor);
      }
    }
    exp2_each(p);
    Operand* const to = s.probabilities + (key + m) / kPairs * kQueries;
    FOVEA_UNROLL for (int n = 0; n < N; ++n) {
      FOVEA_UNROLL for (int i = 0; i < kPairs; ++i) {
        Vec& each = p[n * kPairs + i];
        if (Part::kEdge) each = select(edge.sees(key + m + i, Part::kFirst + n), each, zero());
        if (kBf16Dot) exact[n] = add(exact[n], each);
      }
      sum[n] = add_operands(sum[n], store_probabilities(to + Part::lane(n), p + n * kPairs));
    }
  }
  FOVEA_UNROLL for (int n = 0; n < N; ++n) {
    store(s.block_sum + Part::lane(n), sum[n]);
    if (kBf16Dot) store(s.block_exact + Part::lane(n), exact[n]);
  }
}

// Multiplies the output and the sums of earlier blocks by `factor` where that is not 1; it seldom is not. Both are
// rounded alike, so that values of 1 give exactly 1.
template <int N>
FOVEA_INLINE void rescale_output(const Shape& shape, const ForwardTile& tile, const ForwardScratch& s) {
  for (int n = 0; n < N; ++n) {
    const Vec factor = load(s.factor + n * kLanes);
    if (__builtin_expect(!any(less(factor, broadcast(1.0f))), 1)) continue;
    float* out = tile.out + n * kLanes;
    for (int64_t d = 0; d < shape.dim_v; ++d, out += kQueries) store(out, mul(load(out), factor));
    store(tile.sum + n * kLanes, mul(load(tile.sum + n * kLanes), factor));
    if (kBf16Dot) store(tile.exact + n * kLanes, mul(load(tile.exact + n * kLanes), factor));
  }
}

template <int N>
FOVEA_INLINE void clear_block_sums(const ForwardScratch& s) {
  FOVEA_UNROLL for (int n = 0; n < N; ++n) {
    store(s.block_sum + n * kLanes, zero());
    if (kBf16Dot) store(s.block_exact + n * kLanes, zero());
    store(s.factor + n * kLanes, broadcast(1.0f));
  }
}

template <int N>
FOVEA_INLINE void add_block_sums(const ForwardTile& tile, const ForwardScratch& s) {
  FOVEA_UNROLL for (int n = 0; n < N; ++n) {
    float* const sum = tile.sum + n * kLanes;
    store(sum, add(load(sum), load(s.block_sum + n * kLanes)));
    if (!kBf16Dot) continue;
    float* const exact = tile.exact + n * kLanes;
    store(exact, add(load(exact), load(s.block_exact + n * kLanes)));
  }
}

// The end of the keys that each vector of a query tile sees in a block, in whole register tiles. Later vectors have
// later rows, so they see as many keys or more.
template <int N>
struct VectorEnds {
  int64_t end[N];

  VectorEnds(const Visibility& v, int64_t first_key, int64_t begin) {
    int64_t reached = begin;
    for (int n = 0; n < N; ++n) {
      for (int w = n * kLanes; w < (n + 1) * kLanes; ++w) reached = larger(reached, v.lane[w].end - first_key);
      reached = smaller(kKeyBlock, round_up(reached, kTileRows));
      end[n] = reached;
    }
  }
};

// x += V P of the keys from `begin` on, for vectors from kFirst on: each up to its own end.
template <int kFirst, class Tile, class Keys>
FOVEA_INLINE void add_output(Tile& x, const Keys& keys, int64_t d, int64_t begin, const int64_t* end,
                             const Operand* probabilities) {
  constexpr int M = Keys::kOutputRows, N = sizeof(x[0]) / sizeof(Vec);
  const Operand* const p = probabilities + begin / kPairs * kQueries + kFirst * kLanes;
  const int64_t steps = (end[kFirst] - begin) / kPairs;
  if constexpr (kFirst == 0) {
    keys.output(x, d, begin, p, steps);
  } else if (steps > 0) {
    Vec part[M][N - kFirst];
    FOVEA_UNROLL for (int m = 0; m < M; ++m) {
      FOVEA_UNROLL for (int n = kFirst; n < N; ++n) part[m][n - kFirst] = x[m][n];
    }
    keys.output(part, d, begin, p, steps);
    FOVEA_UNROLL for (int m = 0; m < M; ++m) {
      FOVEA_UNROLL for (int n = kFirst; n < N; ++n) x[m][n] = part[m][n - kFirst];
    }
  }
  if constexpr (kFirst + 1 < N) add_output<kFirst + 1>(x, keys, d, end[kFirst], end, probabilities);
}

// One query tile against the key block that starts at `first_key`; N vectors hold queries.
template <int N, class Score, class Keys>
__attribute__((noinline)) void forward_block(const Shape& shape, ForwardTile& tile, const ForwardScratch& s,
                                             const Keys& keys, int64_t first_key) {
  const int64_t begin = larger(0, tile.visible.any.begin - first_key) / kTileRows * kTileRows;
  const VectorEnds<N> ends(tile.visible, first_key, begin);
  const Interval common{tile.visible.common.begin - first_key, tile.visible.common.end - first_key};
  EdgeMask edge;
  if (begin < common.begin || common.end < ends.end[N - 1]) edge.set(tile.visible, first_key);
  clear_block_sums<N>(s);
  for (int64_t key = begin; key < ends.end[N - 1]; key += kTileRows) {
    if (common.begin <= key && key + kTileRows <= common.end)
      softmax_tile<TilePart<0, N, false>, Score>(shape, tile, s, keys, first_key, begin, key, edge);
    else if (N == 1 || key < ends.end[0])
      softmax_tile<TilePart<0, N, true>, Score>(shape, tile, s, keys, first_key, begin, key, edge);
    else if (N > 2 && key < ends.end[1 % N])
      softmax_tile<TilePart<N / 2, N, true>, Score>(shape, tile, s, keys, first_key, begin, key, edge);
    else
      softmax_tile<TilePart<N - 1, N, true>, Score>(shape, tile, s, keys, first_key, begin, key, edge);
  }
  rescale_output<N>(shape, tile, s);
  for (int64_t d = 0; d < shape.dim_v; d += Keys::kOutputRows) {
    Vec x[Keys::kOutputRows][N];
    clear(x);
    if (ends.end[0] == ends.end[N - 1])
      keys.output(x, d, begin, s.probabilities + begin / kPairs * kQueries, (ends.end[0] - begin) / kPairs);
    else
      add_output<0>(x, keys, d, begin, ends.end, s.probabilities);
    FOVEA_UNROLL for (int m = 0; m < Keys::kOutputRows; ++m) {
      FOVEA_UNROLL for (int n = 0; n < N; ++n) {
        float* out = tile.out + (d + m) * kQueries + n * kLanes;
        store(out, add(load(out), x[m][n]));
      }
    }
  }
  add_block_sums<N>(tile, s);
}

// Divides the accumulated output of `rows` queries by `sum`, and writes it as rows of out; `from` is [dim][kQueries].
FOVEA_INLINE void write_output(const float* from, const float* sum, const OutputRows& to, int64_t group,
                               int64_t first_row, int64_t rows, int64_t dim) {
  int64_t offsets[kLanes];
  for (int64_t r = 0; r < rows; ++r) offsets[r] = row_offset(to.head_stride, to.row_stride, group, first_row + r);
  const Vec divisor = load(sum), reciprocal = div(broadcast(1.0f), divisor);
  const bool rounded = to.element != Element::fp32;  // so much that an ulp of fp32 does not matter
  for (int64_t d = 0; d < dim; d += kLanes) {
    Vec x[kLanes];
    FOVEA_UNROLL for (int i = 0; i < kLanes; ++i) {
      const Vec total = load(from + (d + i) * kQueries);
      x[i] = rounded ? mul(total, reciprocal) : div(total, divisor);
    }
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
      const float lse = log_sum(log_sum_origin(shape, tile.maximum[w]), kBf16Dot ? tile.exact[w] : tile.sum[w]);
      const int64_t offset = row_offset(task.lse.head_stride, task.lse.row_stride, shape.group, first_row + w);
      static_cast<float*>(task.lse.data)[offset] = fully_masked ? -kInfinity : lse;
    }
    if (fully_masked) tile.sum[w] = 1.0f;  // its accumulated output is zero
  }
  for (int64_t w = 0; w < tile.rows; w += kLanes)
    write_output(tile.out + w, tile.sum + w, task.out, shape.group, first_row + w, smaller(kLanes, tile.rows - w),
                 shape.dim_v);
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

// Prefetches a tile's rows while the tile before is packed or written. A task that packs its own keys is so short that
// its rows are in the caches more often.
template <bool kWrite, class Rows>
FOVEA_INLINE void prefetch_tile(const ForwardTask& task, const Rows& rows, int64_t tile, int64_t dim) {
  const int64_t first = tile * kQueries;
  if (task.packed_k == nullptr) return;
  prefetch_rows<kWrite>(rows, task.shape->group, task.first_row + first, smaller(kQueries, task.rows - first), dim);
}

template <class Score>
bool forward(const ForwardTask& task) {
  const Shape& shape = *task.shape;
  ForwardScratch s;
  carve(shape, task.rows, task.packed_k == nullptr, static_cast<char*>(task.scratch), s);
  const int64_t tiles = (task.rows + kQueries - 1) / kQueries;
  Interval any{shape.len_k, 0};
  prefetch_tile<false>(task, task.q, 0, shape.dim_qk);
  for (int64_t t = 0; t < tiles; ++t) {
    prefetch_tile<false>(task, task.q, t + 1, shape.dim_qk);
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
  prefetch_tile<true>(task, task.out, 0, shape.dim_v);
  for (int64_t t = 0; t < tiles; ++t) {
    prefetch_tile<true>(task, task.out, t + 1, shape.dim_v);
    finalize_tile(task, s.tiles[t], task.first_row + t * kQueries);
  }
  return true;
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

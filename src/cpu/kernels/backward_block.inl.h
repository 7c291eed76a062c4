// Backward of one tile of queries and one block of keys: P and dS from recomputed scores, and the sums that dQ, dK and
// dV take from them.
#pragma once

#include "cpu/kernels/backward_tiles.inl.h"
#include "cpu/kernels/score.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int64_t kBackwardKeys = 96;  // of a key block; P of a tile and a block fits into the L1 cache
static_assert(kBackwardKeys <= kKeyBlock && kBackwardKeys % kTileRows == 0 && kBackwardKeys % kDimTileRows == 0);

constexpr int64_t kProductKeys = 48;  // S and dP of so many keys are in the L1 cache when they become P and dS
static_assert(kProductKeys % kTileRows == 0);

// Of one query tile and one key block. S becomes P and dP becomes dS in the same memory if kPairs is 1.
struct TileScores {
  float* products;         // [kBackwardKeys][kQueries], S
  float* dp;               // [kBackwardKeys][kQueries]
  Operand* probabilities;  // [kBackwardKeys][kQueries / kPairs]
  Operand* ds;             // [kBackwardKeys][kQueries / kPairs]
  Operand* ds_keys;        // [kBackwardKeys / kPairs][kQueries]; the same memory as ds if kPairs is 1
};

// The block of keys that a group of tiles works on. Keys are counted from the block's first key.
struct BackwardBlock {
  const Operand *k, *v, *k_columns;
  float *dk, *dv;
  int64_t first_key;
};

// products[key][query] = keys x queries, for the keys of an interval.
template <int N>
__attribute__((noinline)) void multiply_keys(const Operand* keys, const Operand* queries, int64_t steps, Interval range,
                                             float* products) {
  for (int64_t key = range.begin; key < range.end; key += kTileRows) {
    Vec x[kTileRows][N];
    clear(x);
    multiply(x, keys + key * steps, 1, kTileRows, queries, kQueries, steps);
    FOVEA_UNROLL for (int m = 0; m < kTileRows; ++m) {
      FOVEA_UNROLL for (int n = 0; n < N; ++n) store(products + (key + m) * kQueries + n * kLanes, x[m][n]);
    }
  }
}

// Makes P of S, and dS of P and dP, for kTileRows keys from `key` on.
template <int N, class Score, bool kEdge>
FOVEA_INLINE void differentiate_rows(const Shape& shape, const BackwardTile& tile, const TileScores& to,
                                     int64_t first_key, int64_t key, bool wants_ds, const EdgeMask& edge) {
  constexpr int64_t kRow = kQueries / kPairs;
  const Probability probability(shape);
  FOVEA_UNROLL for (int n = 0; n < N; ++n) {
    const Vec lse = load(tile.lse + n * kLanes), delta = load(tile.delta + n * kLanes);
    for (int64_t m = key; m < key + kTileRows; m += kPairs) {
      Vec product[kPairs], p[kPairs], ds[kPairs];
      const auto position = [&](int i) { return ScorePosition{tile.first_row + n * kLanes, first_key + m + i, 1}; };
      FOVEA_UNROLL for (int i = 0; i < kPairs; ++i) {
        product[i] = load(to.products + (m + i) * kQueries + n * kLanes);
        p[i] = Score::apply(shape, product[i], position(i));
      }
      probability(p, lse);
      FOVEA_UNROLL for (int i = 0; kEdge && i < kPairs; ++i) p[i] = select(edge.sees(m + i, n), p[i], zero());
      const int64_t at = m * kRow + n * kLanes / kPairs;
      store_query_rows(to.probabilities + at, kRow, p);
      if (!wants_ds) continue;
      FOVEA_UNROLL for (int i = 0; i < kPairs; ++i) {
        const Vec dp = load(to.dp + (m + i) * kQueries + n * kLanes);
        ds[i] = mul(Score::differentiate(shape, product[i], p[i], position(i)), sub(dp, delta));
        if (kEdge) ds[i] = select(edge.sees(m + i, n), ds[i], zero());
      }
      store_query_rows(to.ds + at, kRow, ds, to.ds_keys + m / kPairs * kQueries + n * kLanes);
    }
  }
}

// The keys of a block that all lanes see, and the mask of the others in `range`.
struct BlockEdges {
  Interval common;
  EdgeMask mask;

  BlockEdges(const Visibility& v, int64_t first_key, Interval range)
      : common{v.common.begin - first_key, v.common.end - first_key} {
    if (range.begin < common.begin || common.end < range.end) mask.set(v, first_key);
  }
};

// The same for an interval of keys.
template <int N, class Score>
FOVEA_INLINE void differentiate(const Shape& shape, const BackwardTile& tile, const TileScores& to, int64_t first_key,
                                Interval keys, bool wants_ds, const BlockEdges& edges) {
  for (int64_t key = keys.begin; key < keys.end; key += kTileRows) {
    if (edges.common.begin <= key && key + kTileRows <= edges.common.end)
      differentiate_rows<N, Score, false>(shape, tile, to, first_key, key, wants_ds, edges.mask);
    else
      differentiate_rows<N, Score, true>(shape, tile, to, first_key, key, wants_ds, edges.mask);
  }
}

// Keys of a block that some lane of a tile sees: rounded to the register tiles of S, and to those of dK.
struct BlockRange {
  Interval keys, sums;
};

template <class Products>
BlockRange range_of(const BackwardTile& tile, int64_t first_key, int64_t block_keys) {
  constexpr int64_t kRows = Products::kScoreKeys, kSumRows = Products::kSumKeys;
  const Interval& any = tile.visible.any;
  BlockRange range{};
  range.keys.begin = larger(0, any.begin - first_key) / kRows * kRows;
  range.keys.end = smaller(round_up(block_keys, kRows), round_up(any.end - first_key, kRows));
  range.sums.begin = range.keys.begin / kSumRows * kSumRows;
  range.sums.end = round_up(range.keys.end, kSumRows);
  return range;
}

// Clears the rows of P or dS that dK's register tiles read and S's do not write.
void clear_rest(Operand* scores, const BlockRange& range) {
  constexpr int64_t kRow = kQueries / kPairs;
  const auto clear_keys = [scores](int64_t begin, int64_t end) {
    __builtin_memset(scores + begin * kRow, 0, static_cast<uint64_t>((end - begin) * kRow) * sizeof(Operand));
  };
  clear_keys(range.sums.begin, range.keys.begin);
  clear_keys(range.keys.end, range.sums.end);
}

// Computes P and dS of a tile.
template <int N, class Score>
__attribute__((noinline)) void recompute(const Shape& shape, const BackwardTile& tile, const TileScores& to,
                                         const BackwardBlock& block, const BlockRange& range, bool wants_ds) {
  const BlockEdges edges(tile.visible, block.first_key, range.keys);
  for (int64_t first = range.keys.begin; first < range.keys.end; first += kProductKeys) {
    const Interval keys{first, smaller(range.keys.end, first + kProductKeys)};
    multiply_keys<N>(block.k, tile.q, steps_of(shape.dim_qk), keys, to.products);
    if (wants_ds) multiply_keys<N>(block.v, tile.dout, steps_of(shape.dim_v), keys, to.dp);
    differentiate<N, Score>(shape, tile, to, block.first_key, keys, wants_ds, edges);
  }
  clear_rest(to.probabilities, range);
  clear_rest(to.ds, range);
}

// One tile's part of a sum over queries.
struct KeySum {
  const Operand* scores;  // P or dS
  const Operand* rows;    // dout or q
  int64_t steps;
  Interval keys;
};

// sums[key][d] += sum over the queries of all parts of scores[key][query] * rows[query][d], for `vectors` vectors of
// columns d.
template <int N>
__attribute__((noinline)) void add_key_sums(const KeySum* parts, int64_t count, int64_t column, int64_t width,
                                            Interval keys, float* sums) {
  for (; column + N * kLanes <= width; column += N * kLanes) {
    for (int64_t key = keys.begin; key < keys.end; key += kDimTileRows) {
      Vec x[kDimTileRows][N];
      clear(x);
      for (int64_t i = 0; i < count; ++i) {
        const KeySum& part = parts[i];
        if (key < part.keys.begin || part.keys.end <= key) continue;
        multiply(x, part.scores + key * (kQueries / kPairs), kQueries / kPairs, 1, part.rows + column, width,
                 part.steps);
      }
      FOVEA_UNROLL for (int m = 0; m < kDimTileRows; ++m) {
        FOVEA_UNROLL for (int n = 0; n < N; ++n) {
          float* sum = sums + (key + m) * width + column + n * kLanes;
          store(sum, add(load(sum), x[m][n]));
        }
      }
    }
  }
  if constexpr (N > 1) add_key_sums<N / 2>(parts, count, column, width, keys, sums);
}

template <int N>
__attribute__((noinline)) void add_query_sums(const Operand* k_columns, const Operand* ds_keys, Interval keys,
                                              int64_t dim, float* dq) {
  const int64_t skipped = keys.begin / kPairs, steps = (keys.end - keys.begin) / kPairs;
  for (int64_t d = 0; d < dim; d += kTileRows) {
    Vec x[kTileRows][N];
    clear(x);
    multiply(x, k_columns + d * (kBackwardKeys / kPairs) + skipped * kTileRows, 1, kTileRows,
             ds_keys + skipped * kQueries, kQueries, steps);
    FOVEA_UNROLL for (int m = 0; m < kTileRows; ++m) {
      FOVEA_UNROLL for (int n = 0; n < N; ++n) {
        float* sum = dq + (d + m) * kQueries + n * kLanes;
        store(sum, add(load(sum), x[m][n]));
      }
    }
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

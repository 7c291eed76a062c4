// Forward for up to 16 query rows per key head with queries in the lanes: the loops of forward.inl.h over a chunk of
// keys, whose rows are read where they lie.
#pragma once

#include "cpu/kernels/forward.inl.h"
#include "cpu/kernels/partials.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

// x and y += the products of two halves of the contracted dimension, each of `steps`.
template <int M, int N>
FOVEA_INLINE void multiply_both(Vec (&x)[M][N], Vec (&y)[M][N], const Operand* a, int64_t a_row, const Operand* b,
                                int64_t b_step, int64_t steps) {
  for (int64_t s = 0; s < steps; ++s) {
    FOVEA_UNROLL for (int n = 0; n < N; ++n) {
      const OperandVec first = load_operands(b + s * b_step + n * kLanes);
      const OperandVec second = load_operands(b + (steps + s) * b_step + n * kLanes);
      FOVEA_UNROLL for (int m = 0; m < M; ++m) {
        x[m][n] = multiply_add(broadcast_operand(a + m * a_row + s), first, x[m][n]);
        y[m][n] = multiply_add(broadcast_operand(a + m * a_row + steps + s), second, y[m][n]);
      }
    }
  }
}

// A key block as rows of K and V, for the loop of forward.inl.h. Each product prefetches rows that the next one reads.
struct KeyRows {
  const Operand* k;
  const Operand* v;            // kPairs keys to a row
  int64_t k_stride, v_stride;  // operands
  LaterRows values, next;      // rows of V in this block, of K in the next one
  int64_t dim_v;

  // One vector of queries needs more accumulators than a register tile has: twice the dimensions of the output, and
  // scores as two sums, of the first and the last half of the dimensions.
  static constexpr bool kTwoSums = kManyRegisters;
  static constexpr int kOutputRows = kTwoSums ? 2 * kTileRows : kTileRows;

  template <int M, int N>
  FOVEA_INLINE void scores(Vec (&x)[M][N], int64_t key, const Operand* q, int64_t steps) const {
    values.prefetch(key, key + kTileRows);
    const Operand* const rows = k + key * k_stride;
    const int64_t half = kTwoSums ? steps / 2 : 0;
    if constexpr (kTwoSums) {
      Vec second[M][N];
      clear(second);
      multiply_both(x, second, rows, k_stride, q, kQueries, half);
      FOVEA_UNROLL for (int m = 0; m < M; ++m) {
        FOVEA_UNROLL for (int n = 0; n < N; ++n) x[m][n] = add(x[m][n], second[m][n]);
      }
    }
    multiply(x, rows + 2 * half, k_stride, 1, q + 2 * half * kQueries, kQueries, steps - 2 * half);
  }
  template <int M, int N>
  FOVEA_INLINE void output(Vec (&x)[M][N], int64_t d, int64_t key, const Operand* p, int64_t steps) const {
    next.prefetch(kKeyBlock * d / dim_v, kKeyBlock * (d + M) / dim_v);
    multiply(x, v + d + key / kPairs * v_stride, 1, v_stride, p, kQueries, steps);
  }
};

struct RowScratch {
  ForwardScratch forward;
  Operand* k;  // [kKeyBlock][few_steps]: rows of K that cannot be read in place
  Operand* v;  // [kKeyBlock / kPairs][padded dim_v]: rows of V that cannot, or pairs of them
};

int64_t carve(const Shape& shape, char* base, RowScratch& s) {
  const int64_t used = carve(shape, few_rows_of(shape), false, base, s.forward);
  Scratch memory{base, round_up(used, 64)};
  s.k = memory.take<Operand>(kKeyBlock * few_steps(shape));
  s.v = memory.take<Operand>(kKeyBlock / kPairs * padded(shape.dim_v));
  return memory.used;
}

// Copies `keys` rows of V as operands, with zeros beyond dim_v and in the rows up to kKeyBlock.
template <Element kElement>
void copy_values(const FewQueriesTask& task, int64_t first, int64_t keys, Operand* to) {
  constexpr int64_t kWidth = kElement == Element::fp32 ? 4 : 2;
  const int64_t dim = task.shape->dim_v, stride = task.v.row_stride * kWidth;
  alignas(64) char rows[2][kLanes * 4];
  const char* from = static_cast<const char*>(task.v.data) + first * stride;
  for (int64_t key = 0; key < kKeyBlock; key += kPairs, from += kPairs * stride) {
    for (int64_t d = 0; d < padded(dim); d += kLanes, to += kLanes) {
      const char *row = from + d * kWidth, *next = row + stride;
      if (d + kLanes > dim || key + kPairs > keys) {
        const auto bytes = static_cast<uint64_t>(larger(0, smaller(kLanes, dim - d)) * kWidth);
        __builtin_memset(rows, 0, sizeof rows);
        if (key < keys) __builtin_memcpy(rows[0], row, bytes);
        if (key + 1 < keys && kPairs > 1) __builtin_memcpy(rows[1], next, bytes);
        row = rows[0], next = rows[1];
      }
      store_operands(to, load_key_operands<kElement>(row, next));
    }
  }
}

template <bool kOneType>
void copy_values_of(const FewQueriesTask& task, int64_t first, int64_t keys, Operand* to) {
  if constexpr (kOneType) {
    copy_values<Element::bf16>(task, first, keys, to);
  } else if (task.v.element == Element::fp32) {
    copy_values<Element::fp32>(task, first, keys, to);
  } else if (task.v.element == Element::bf16) {
    copy_values<Element::bf16>(task, first, keys, to);
  } else {
    copy_values<Element::fp16>(task, first, keys, to);
  }
}

// The `keys` rows of K and V from `first` on, in place if they hold operands and whole register tiles.
KeyRows rows_of_block(const FewQueriesTask& task, const RowScratch& s, int64_t first, int64_t keys) {
  const Shape& shape = *task.shape;
  const int64_t left = task.first_key + task.keys - first - keys;
  KeyRows rows{s.k,
               s.v,
               few_steps(shape),
               padded(shape.dim_v),
               later_rows(task.v, shape.dim_v, first, keys),
               later_rows(task.k, shape.dim_qk, first + keys, smaller(kKeyBlock, left)),
               shape.dim_v};
  const bool whole = keys % kTileRows == 0;
  if (whole && keys_hold_operands(task)) {
    rows.k = key_row(task, first);
    rows.k_stride = task.k.row_stride / kPairs;
  } else {
    copy_keys(task, first, keys, kKeyBlock, s.k);
  }
  if (whole && kPairs == 1 && task.v.element == Element::fp32 && shape.dim_v % KeyRows::kOutputRows == 0) {
    rows.v = static_cast<const Operand*>(task.v.data) + first * task.v.row_stride;
    rows.v_stride = task.v.row_stride;
  } else {
    copy_values_of<kBf16Dot>(task, first, keys, s.v);
    rows.values.count = 0;
  }
  return rows;
}

// Only the chunk's keys count.
void cut_visible(const Interval& chunk, Visibility& v) {
  const auto cut = [&](const Interval& keys) {
    return Interval{larger(keys.begin, chunk.begin), smaller(keys.end, chunk.end)};
  };
  for (Interval& lane : v.lane) lane = cut(lane);
  v.any = cut(v.any);
  v.common = cut(v.common);
}

void write_partial(const FewQueriesTask& task, const ForwardScratch& s, const ForwardTile& tile) {
  const Shape& shape = *task.shape;
  const int64_t rows = few_rows_of(shape), dim = padded(shape.dim_v);
  FewPartial p;
  carve(shape, reinterpret_cast<char*>(task.partial), p);
  for (int64_t r = 0; r < rows; ++r) {
    p.maximum[r] = tile.limit[r] == -kInfinity ? -kInfinity : tile.maximum[r];
    p.sum[r] = tile.sum[r];
    p.exact[r] = kBf16Dot ? tile.exact[r] : 0;
  }
  transpose(tile.out, kQueries, shape.dim_v, rows, s.rows, dim);
  for (int64_t i = 0; i < rows * dim; i += kLanes) store(p.out + i, load(s.rows + i));
}

// One chunk of keys.
template <class Score>
bool attend_by_rows(const FewQueriesTask& task) {
  const Shape& shape = *task.shape;
  const int64_t rows = few_rows_of(shape), end = task.first_key + task.keys;
  RowScratch s;
  carve(shape, static_cast<char*>(task.scratch), s);
  ForwardTask whole{};
  whole.shape = task.shape;
  whole.q = task.q;
  ForwardTile& tile = s.forward.tiles[0];
  begin_tile(whole, s.forward, 0, rows, tile);
  cut_visible({task.first_key, end}, tile.visible);
  for (int64_t key = task.first_key; key < end; key += kKeyBlock) {
    if (task.cancel.raised(task.cancel.flag)) return false;
    const KeyRows block = rows_of_block(task, s, key, smaller(kKeyBlock, end - key));
    if (rows <= kLanes)
      forward_block<1, Score>(shape, tile, s.forward, block, key);
    else
      forward_block<2, Score>(shape, tile, s.forward, block, key);
  }
  write_partial(task, s.forward, tile);
  return true;
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

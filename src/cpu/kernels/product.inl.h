// Matrix products of packed panels, conversions and column sums for Linear.
#pragma once

#include "cpu/kernels/panels.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

void convert(const ConvertTask& t) {
  const Vec factor = broadcast(t.factor), beta = broadcast(t.beta);
  for (int64_t r = 0; r < t.rows; ++r) {
    const int64_t from = r * t.from.row_stride, to = r * t.to.row_stride;
    for (int64_t d = 0; d < t.columns; d += kLanes) {
      const int64_t count = t.columns - d;
      Vec x = t.from.data == nullptr ? zero() : mul(load_some(t.from.data, t.from.element, from + d, count), factor);
      if (t.beta != 0.0f) x = fma(beta, load_some(t.to.data, t.to.element, to + d, count), x);
      if (t.bias.data != nullptr) x = add(x, load_some(t.bias.data, t.bias.element, d, count));
      store_some(t.to.data, t.to.element, to + d, count, x);
    }
  }
}

// x += the products of kUnrolled steps. Prefetches b kAhead steps ahead.
template <int M, int N>
FOVEA_INLINE void add_steps(Vec (&x)[M][N], const Operand* a, const Operand* b) {
  constexpr int kAhead = 8;
  FOVEA_UNROLL for (int s = 0; s < kUnrolled; ++s, a += kPanelRows, b += kPanelColumns) {
    OperandVec lanes[N];
    FOVEA_UNROLL for (int n = 0; n < N; ++n) lanes[n] = load_operands(b + n * kLanes);
    FOVEA_UNROLL for (int n = 0; n < N * kLanes; n += kLineOperands) {
      __builtin_prefetch(b + kAhead * kPanelColumns + n);
    }
    FOVEA_UNROLL for (int m = 0; m < M; ++m) {
      const OperandVec row = broadcast_operand(a + m);
      FOVEA_UNROLL for (int n = 0; n < N; ++n) accumulate(row, lanes[n], x[m][n]);
    }
  }
}

// Cache lines to prefetch.
struct LaterLines {
  const char* data;
  int64_t count;
};

// The microkernel: c = alpha * a b + beta * c for M rows and N vectors of columns. Meanwhile it prefetches c and then
// `later`, a line at a time, since many prefetches at once would delay the loads of b.
template <int M, int N>
void multiply_tile(const Operand* a, const Operand* b, int64_t steps, const ProductTask& t, float* c,
                   LaterLines later) {
  Vec x[M][N];
  clear(x);
  int64_t s = 0;
  const float* prefetched = c;
  for (int m = 0; m < M && s + kUnrolled <= steps; ++m, s += kUnrolled, prefetched += t.c_stride) {
    FOVEA_UNROLL for (int n = 0; n < N * kLanes; n += kLineOperands) __builtin_prefetch(prefetched + n);
    add_steps(x, a + s * kPanelRows, b + s * kPanelColumns);
  }
  const int64_t ahead = smaller(steps, s + later.count * kUnrolled);
  for (; s + kUnrolled <= ahead; s += kUnrolled, later.data += kLineBytes) {
    __builtin_prefetch(later.data, 0, 2);
    add_steps(x, a + s * kPanelRows, b + s * kPanelColumns);
  }
  for (; s + kUnrolled <= steps; s += kUnrolled) add_steps(x, a + s * kPanelRows, b + s * kPanelColumns);
  const Vec alpha = broadcast(t.alpha), beta = broadcast(t.beta);
  FOVEA_UNROLL for (int m = 0; m < M; ++m, c += t.c_stride) {
    FOVEA_UNROLL for (int n = 0; n < N; ++n) {
      const Vec sum = mul(x[m][n], alpha);
      store(c + n * kLanes, t.beta == 0.0f ? sum : fma(beta, load(c + n * kLanes), sum));
    }
  }
}

// At the edge of a tile: one vector instead of kProductVectors, and a third or two thirds of the rows, so that few
// products are wasted.
template <int M>
FOVEA_INLINE void multiply_columns(const Operand* a, const Operand* b, int64_t steps, const ProductTask& t, float* c,
                                   int64_t columns, LaterLines later) {
  if (columns <= kLanes)
    multiply_tile<M, 1>(a, b, steps, t, c, later);
  else
    multiply_tile<M, kProductVectors>(a, b, steps, t, c, later);
}

void multiply_rows(const Operand* a, const Operand* b, int64_t steps, const ProductTask& t, float* c, int64_t rows,
                   int64_t columns, LaterLines later) {
  constexpr int kThird = kPanelRows / 3;
  static_assert(kPanelRows % 3 == 0);
  if (rows <= kThird)
    multiply_columns<kThird>(a, b, steps, t, c, columns, later);
  else if (rows <= 2 * kThird)
    multiply_columns<2 * kThird>(a, b, steps, t, c, columns, later);
  else
    multiply_columns<kPanelRows>(a, b, steps, t, c, columns, later);
}

// A register tile that ends inside a vector or a third goes through a buffer, so that nothing outside c is accessed.
void multiply_edge(const Operand* a, const Operand* b, int64_t steps, const ProductTask& t, float* c, int64_t rows,
                   int64_t columns, LaterLines later) {
  alignas(64) float sums[kPanelRows * kPanelColumns];
  ProductTask whole = t;
  whole.alpha = 1.0f, whole.beta = 0.0f, whole.c_stride = kPanelColumns;
  multiply_rows(a, b, steps, whole, sums, rows, columns, later);
  convert({{sums, Element::fp32, 0, kPanelColumns},
           {c, Element::fp32, 0, t.c_stride},
           {nullptr, Element::fp32, 0, 0},
           rows,
           columns,
           t.alpha,
           t.beta});
}

// A panel of a stays in L1 while panels of b stream from L2. Each register tile prefetches its share of the next
// panels.
void product(const ProductTask& t) {
  const auto* a = static_cast<const Operand*>(t.a);
  const auto* b = static_cast<const Operand*>(t.b);
  const int64_t steps = steps_of(t.depth);
  const int64_t tiles = divide_up(t.rows, kPanelRows) * divide_up(t.columns, kPanelColumns);
  const int64_t lines = divide_up(t.next_bytes, kLineBytes);
  int64_t tile = 0;
  for (int64_t i = 0; i < t.rows; i += kPanelRows) {
    const int64_t rows = smaller(kPanelRows, t.rows - i);
    for (int64_t j = 0; j < t.columns; j += kPanelColumns, ++tile) {
      const int64_t columns = smaller(kPanelColumns, t.columns - j);
      const Operand *rows_of_a = a + i * steps, *columns_of_b = b + j * steps;
      float* const c = t.c + i * t.c_stride + j;
      const int64_t first = lines * tile / tiles;
      const LaterLines later{static_cast<const char*>(t.next) + first * kLineBytes, lines * (tile + 1) / tiles - first};
      if (rows % (kPanelRows / 3) == 0 && columns % kLanes == 0)
        multiply_rows(rows_of_a, columns_of_b, steps, t, c, rows, columns, later);
      else
        multiply_edge(rows_of_a, columns_of_b, steps, t, c, rows, columns, later);
    }
  }
}

// Sums chunks of rows: the rounding error grows with a chunk's length plus the number of chunks, not with their
// product.
void sum_columns(const ColumnSumTask& t) {
  constexpr int64_t kRows = 128;
  for (int64_t d = 0; d < t.columns; d += kLanes) {
    const int64_t count = t.columns - d;
    Vec total = zero();
    for (int64_t first = 0; first < t.rows; first += kRows) {
      Vec sum = zero();
      for (int64_t r = first; r < smaller(t.rows, first + kRows); ++r)
        sum = add(sum, load_some(t.from.data, t.from.element, r * t.from.row_stride + d, count));
      total = add(total, sum);
    }
    store_some(t.sums, Element::fp32, d, count, total);
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

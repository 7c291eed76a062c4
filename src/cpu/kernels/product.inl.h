// Matrix products, conversions and column sums for Linear, from the register tiles of attention over packed panels.
#pragma once

#include "cpu/kernels/tile.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int64_t kDepth = 256;  // contracted elements at a time, so that packed panels of both operands stay in caches

FOVEA_INLINE Vec load_some(const void* data, Element element, int64_t index, int64_t count) {
  return count >= kLanes ? load_converted(data, element, index) : load_tail(data, element, index, count);
}

FOVEA_INLINE void store_some(void* data, Element element, int64_t index, int64_t count, Vec x) {
  if (count >= kLanes)
    store_converted(data, element, index, x);
  else
    store_tail(data, element, index, count, x);
}

struct ProductScratch {
  float* sums;  // [rows, a whole number of tiles][stride]
  Operand* b;   // panels [kDepth / kPairs][kQueries]
  Operand* a;   // one panel [kDepth / kPairs][kTileRows]
  float* wide;  // rows of one panel as fp32
  float* transposed;
  int64_t stride;
};

inline int64_t carve(int64_t rows, int64_t columns, void* base, ProductScratch& s) {
  Scratch scratch{static_cast<char*>(base), 0};
  constexpr int64_t kRoom = kDepth + kDimStep;  // the last step of a transposition may write beyond kDepth
  s.stride = round_up(columns, kQueries);
  s.sums = scratch.take<float>(round_up(rows, kTileRows) * s.stride);
  s.b = scratch.take<Operand>(s.stride * kRoom / kPairs);
  s.a = scratch.take<Operand>(kTileRows * kRoom / kPairs);
  s.wide = scratch.take<float>(padded(kQueries) * kRoom);
  s.transposed = scratch.take<float>(kQueries * kRoom);
  return scratch.used;
}

// An operand; `along_rows` if neighbours in its rows are neighbours in the contracted dimension.
struct PanelSource {
  ProductOperand operand;
  bool along_rows;
};

// Packs `count` rows of a, or columns of b, from `first` on as operands [steps][kWidth]; the rest of the panel is zero.
template <int kWidth>
FOVEA_INLINE void pack_panel(const PanelSource& x, int64_t first, int64_t count, int64_t k, int64_t depth,
                             const ProductScratch& s, Operand* to) {
  const int64_t size = x.operand.element == Element::fp32 ? 4 : 2;
  const char* data = static_cast<const char*>(x.operand.data);
  InputRows rows{nullptr, x.operand.element, 0, x.operand.row_stride};
  if (x.along_rows) {
    rows.data = data + (first * rows.row_stride + k) * size;
    const int64_t width = padded(depth);
    read_rows(rows, 1, 0, count, depth, s.wide, kWidth, width);
    if (kWidth == kQueries)
      pack_queries(s.wide, width, depth, s.transposed, to);
    else
      pack_by_rows<kWidth>(s.wide, width, kWidth, depth, to);
  } else {
    rows.data = data + (k * rows.row_stride + first) * size;
    const int64_t steps = round_up(depth, kPairs), width = padded(kWidth);
    read_rows(rows, 1, 0, depth, count, s.wide, steps, width);
    pack_by_columns(s.wide, width, steps, kWidth, kWidth, to);
  }
}

// A tile's sums continue from one kDepth step to the next, so that their order does not depend on the tasks.
FOVEA_INLINE void add_tile(const Operand* a, const Operand* b, int64_t steps, bool first, float* sums, int64_t stride) {
  Vec x[kTileRows][kTileVectors];
  if (first) {
    clear(x);
  } else {
    FOVEA_UNROLL for (int m = 0; m < kTileRows; ++m) {
      FOVEA_UNROLL for (int n = 0; n < kTileVectors; ++n) x[m][n] = load(sums + m * stride + n * kLanes);
    }
  }
  multiply(x, a, 1, kTileRows, b, kQueries, steps);
  FOVEA_UNROLL for (int m = 0; m < kTileRows; ++m) {
    FOVEA_UNROLL for (int n = 0; n < kTileVectors; ++n) store(sums + m * stride + n * kLanes, x[m][n]);
  }
}

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

void product(const ProductTask& t) {
  ProductScratch s;
  carve(t.rows, t.columns, t.scratch, s);
  const PanelSource a{t.a, !t.a.transposed}, b{t.b, t.b.transposed};
  const int64_t panel = kQueries * (kDepth + kDimStep) / kPairs;
  for (int64_t k = 0; k < t.depth; k += kDepth) {
    const int64_t depth = smaller(kDepth, t.depth - k), steps = (depth + kPairs - 1) / kPairs;
    for (int64_t j = 0; j < t.columns; j += kQueries)
      pack_panel<kQueries>(b, j, smaller(kQueries, t.columns - j), k, depth, s, s.b + j / kQueries * panel);
    for (int64_t i = 0; i < t.rows; i += kTileRows) {
      pack_panel<kTileRows>(a, i, smaller(kTileRows, t.rows - i), k, depth, s, s.a);
      for (int64_t j = 0; j < t.columns; j += kQueries)
        add_tile(s.a, s.b + j / kQueries * panel, steps, k == 0, s.sums + i * s.stride + j, s.stride);
    }
  }
  convert({{s.sums, Element::fp32, 0, s.stride},
           {t.c, Element::fp32, 0, t.c_stride},
           {nullptr, Element::fp32, 0, 0},
           t.rows,
           t.columns,
           t.alpha,
           t.beta});
}

int64_t product_scratch_bytes(int64_t rows, int64_t columns) {
  ProductScratch unused;
  return carve(rows, columns, nullptr, unused);
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

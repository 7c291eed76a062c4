// The output of a block of keys for few query rows: head dimensions in the lanes. Rows of V are read where they lie.
#pragma once

#include "cpu/kernels/bundles.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

// Rows of V, in their own type. kPairs keys and kLanes columns form a vector of operands.
struct ValueRows {
  const char* data;    // of the block's first key
  int64_t stride;      // bytes
  const char* no_key;  // zeros, the partner of a last key without one
  int64_t keys;
  LaterRows later;        // of the next block; all tiles prefetch a share
  int64_t lines_per_key;  // that a tile prefetches
};

// A register tile of the output: M rows of a bundle of kWidth, N vectors of columns. P is summed in the same order: if
// all values are 1, out is exactly 1.
template <int kWidth, int N, Element kElement>
struct ValueTile {
  static constexpr int M = kWidth < 4 ? kWidth : 4;
  static constexpr int64_t kBytes = kElement == Element::fp32 ? 4 : 2;
  static constexpr int64_t kParts = kLanes / kWidth / kPairs;  // steps of a row that lie together in P
  Vec x[M][N], sums[M][1];

  static FOVEA_INLINE const Operand* at(const Operand* probabilities, int64_t step) {
    return probabilities + step / kParts * (kWidth * kParts) + step % kParts;
  }
  FOVEA_INLINE void add_step(const Operand* probabilities, const char* data, const char* partner) {
    OperandVec values[N];
    FOVEA_UNROLL for (int n = 0; n < N; ++n) {
      const int64_t offset = n * kLanes * kBytes;
      values[n] = load_key_operands<kElement>(data + offset, partner + offset);
    }
    FOVEA_UNROLL for (int m = 0; m < M; ++m) {
      const OperandVec weight = broadcast_operand(probabilities + m * kParts);
      sums[m][0] = add_operands(sums[m][0], weight);
      FOVEA_UNROLL for (int n = 0; n < N; ++n) x[m][n] = multiply_add(weight, values[n], x[m][n]);
    }
  }
};

// Adds the products of P, from the bundle's row `row` on, with the columns of a block of V to out; to sums the sums of
// P. A tile with few accumulators has two sets of them, for even and odd steps, so that enough products run at once.
template <int kWidth, int N, Element kElement>
void add_values(const Bundle& b, int64_t row, ValueRows& v, float* out, int64_t out_stride, float* sums) {
  using Tile = ValueTile<kWidth, N, kElement>;
  constexpr int kSets = Tile::M * N <= (kManyRegisters ? 8 : 4) ? 2 : 1;
  Tile tiles[kSets];
  FOVEA_UNROLL for (int i = 0; i < kSets; ++i) clear(tiles[i].x), clear(tiles[i].sums);
  const Operand* const probabilities = b.probabilities + row * Tile::kParts;
  const int64_t step_bytes = kPairs * v.stride, steps = v.keys / kPairs, lines = v.lines_per_key * kPairs;
  const char* data = v.data;
  int64_t step = 0;
  for (; step + kSets <= steps; step += kSets, data += kSets * step_bytes) {
    FOVEA_UNROLL for (int i = 0; i < kSets; ++i) {
      if (lines > 0) v.later.prefetch(lines);
      const char* const key = data + i * step_bytes;
      tiles[i].add_step(Tile::at(probabilities, step + i), key, key + v.stride);
    }
  }
  for (; step * kPairs < v.keys; ++step, data += step_bytes) {
    const bool pair = (step + 1) * kPairs <= v.keys;
    tiles[0].add_step(Tile::at(probabilities, step), data, pair ? data + v.stride : v.no_key);
  }
  FOVEA_UNROLL for (int m = 0; m < Tile::M; ++m) {
    FOVEA_UNROLL for (int n = 0; n < N; ++n) {
      float* const to = out + m * out_stride + n * kLanes;
      const Vec x = kSets > 1 ? add(tiles[0].x[m][n], tiles[kSets - 1].x[m][n]) : tiles[0].x[m][n];
      store(to, add(load(to), x));
    }
    if (sums == nullptr) continue;
    const Vec sum = kSets > 1 ? add(tiles[0].sums[m][0], tiles[kSets - 1].sums[m][0]) : tiles[0].sums[m][0];
    float lanes[kLanes];
    store(lanes, add(broadcast(sums[m]), sum));
    sums[m] = lanes[0];
  }
}

// N vectors of columns, from `column` on, of all rows. No bundle is wider than kWidest.
template <int N, Element kElement, int kWidest = kWidestBundle>
void add_columns(const FewPartial& p, const BundleScratch& s, ValueRows& v, int64_t column, int64_t out_stride) {
  for (int64_t i = 0; i < s.count; ++i) {
    const Bundle& b = s.bundles[i];
    with_width<kWidest>(b.width, [&](auto width) {
      constexpr int M = ValueTile<width.kWidth, N, kElement>::M;
      for (int64_t row = 0; row < b.rows; row += M) {
        const int64_t r = b.first_row + row;
        add_values<width.kWidth, N, kElement>(b, row, v, p.out + r * out_stride + column, out_stride,
                                              column == 0 ? p.sum + r : nullptr);
      }
    });
  }
}

// Copies the columns of V that do not fill a vector, with zeros behind them.
void copy_tail(const ValueRows& v, int64_t columns, int64_t width, char* to) {
  const auto bytes = static_cast<uint64_t>(columns * width);
  const char* from = v.data;
  for (int64_t key = 0; key < v.keys; ++key, from += v.stride, to += kLanes * width) {
    __builtin_memcpy(to, from, bytes);
    __builtin_memset(to + bytes, 0, static_cast<uint64_t>(kLanes * width) - bytes);
  }
}

// out += P V for a block of keys.
template <Element kElement>
void value_block(const FewQueriesTask& task, const FewPartial& p, const BundleScratch& s, int64_t first_key,
                 int64_t keys) {
  constexpr int64_t kBytes = kElement == Element::fp32 ? 4 : 2;
  constexpr int N = kManyRegisters ? 4 : 2;
  const int64_t dim = task.shape->dim_v, stride = padded(dim), v_stride = task.v.row_stride * kBytes;
  const int64_t rows = few_rows_of(*task.shape);
  ValueRows v{.data = static_cast<const char*>(task.v.data) + first_key * v_stride,
              .stride = v_stride,
              .no_key = s.no_key,
              .keys = keys,
              .later = later_rows(task, task.v, dim, first_key, kFewKeys),
              .lines_per_key = 0};
  if (task.far) {
    const int64_t columns = (rows <= 2 && kManyRegisters ? 2 : 1) * N * kLanes;  // of a tile, which has up to 4 rows
    v.lines_per_key = divide_up(v.later.lines(), divide_up(rows, 4) * larger(1, dim / columns));
  }
  int64_t d = 0;
  if constexpr (kManyRegisters) {
    constexpr int kWide = 2 * N;  // vectors of columns, which one or two rows have registers for
    for (; rows <= 2 && d + kWide * kLanes <= dim; d += kWide * kLanes, v.data += kWide * kLanes * kBytes)
      add_columns<kWide, kElement, 2>(p, s, v, d, stride);
  }
  for (; d + N * kLanes <= dim; d += N * kLanes, v.data += N * kLanes * kBytes)
    add_columns<N, kElement>(p, s, v, d, stride);
  for (; d + kLanes <= dim; d += kLanes, v.data += kLanes * kBytes) add_columns<1, kElement>(p, s, v, d, stride);
  if (d == dim) return;
  copy_tail(v, dim - d, kBytes, s.v_tail);
  ValueRows tail = v;
  tail.data = s.v_tail, tail.stride = kLanes * kBytes;
  add_columns<1, kElement>(p, s, tail, d, stride);
}

// Kernels for one type do without the others.
template <bool kOneType>
void value_block_of(const FewQueriesTask& task, const FewPartial& p, const BundleScratch& s, int64_t first_key,
                    int64_t keys) {
  if constexpr (kOneType) {
    value_block<Element::bf16>(task, p, s, first_key, keys);
  } else if (task.v.element == Element::fp32) {
    value_block<Element::fp32>(task, p, s, first_key, keys);
  } else if (task.v.element == Element::bf16) {
    value_block<Element::bf16>(task, p, s, first_key, keys);
  } else {
    value_block<Element::fp16>(task, p, s, first_key, keys);
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

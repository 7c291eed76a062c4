// Converts rows of tensors to and from fp32, and packs operands in the order in which products read them.
#pragma once

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/transpose.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int kQueries = kTileVectors * kLanes;  // queries of one tile
constexpr float kInfinity = __builtin_inff();

// Rows in fp32 are padded with zeros to a multiple of this many floats.
constexpr int64_t kDimStep = kLanes > kTileRows ? kLanes : kTileRows;

constexpr int64_t divide_up(int64_t value, int64_t step) { return (value + step - 1) / step; }
constexpr int64_t round_up(int64_t value, int64_t step) { return divide_up(value, step) * step; }
constexpr int64_t padded(int64_t dim) { return round_up(dim, kDimStep); }
constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

FOVEA_INLINE int64_t row_offset(int64_t head_stride, int64_t row_stride, int64_t group, int64_t row) {
  return group == 1 ? row * row_stride : row / group * row_stride + row % group * head_stride;
}

FOVEA_INLINE Vec load_converted(const void* data, Element element, int64_t index) {
  if (element == Element::fp32) return load(static_cast<const float*>(data) + index);
  const uint16_t* p = static_cast<const uint16_t*>(data) + index;
  return element == Element::bf16 ? load_bf16(p) : load_fp16(p);
}

FOVEA_INLINE void store_converted(void* data, Element element, int64_t index, Vec x) {
  if (element == Element::fp32) {
    store(static_cast<float*>(data) + index, x);
  } else if (element == Element::bf16) {
    store_bf16(static_cast<uint16_t*>(data) + index, x);
  } else {
    store_fp16(static_cast<uint16_t*>(data) + index, x);
  }
}

// The last dim % kLanes elements of a row go through a buffer of one vector, so that nothing outside the row is
// accessed.
inline Vec load_tail(const void* data, Element element, int64_t index, int64_t count) {
  alignas(64) char copy[kLanes * sizeof(float)] = {};
  const int64_t size = element == Element::fp32 ? 4 : 2;
  __builtin_memcpy(copy, static_cast<const char*>(data) + index * size, static_cast<uint64_t>(count * size));
  return load_converted(copy, element, 0);
}

inline void store_tail(void* data, Element element, int64_t index, int64_t count, Vec x) {
  alignas(64) char copy[kLanes * sizeof(float)];
  const int64_t size = element == Element::fp32 ? 4 : 2;
  store_converted(copy, element, 0, x);
  __builtin_memcpy(static_cast<char*>(data) + index * size, copy, static_cast<uint64_t>(count * size));
}

// Starts to load rows [first, first + count) into the caches; with kWrite, to write them.
template <bool kWrite, class Rows>
FOVEA_INLINE void prefetch_rows(const Rows& rows, int64_t group, int64_t first, int64_t count, int64_t dim) {
  const int64_t size = rows.element == Element::fp32 ? 4 : 2;
  for (int64_t r = first; r < first + count; ++r) {
    const int64_t offset = row_offset(rows.head_stride, rows.row_stride, group, r);
    const char* const row = static_cast<const char*>(rows.data) + offset * size;
    for (int64_t i = 0; i < dim * size; i += 64) __builtin_prefetch(row + i, kWrite);
  }
}

// Reads rows [first, first + count) as fp32 into to[padded_count][padded_dim]. The padding becomes zero.
inline void read_rows(const InputRows& rows, int64_t group, int64_t first, int64_t count, int64_t dim, float* to,
                      int64_t padded_count, int64_t padded_dim) {
  for (int64_t r = 0; r < padded_count; ++r, to += padded_dim) {
    int64_t d = 0;
    if (r < count) {
      const int64_t offset = row_offset(rows.head_stride, rows.row_stride, group, first + r);
      for (; d + kLanes <= dim; d += kLanes) store(to + d, load_converted(rows.data, rows.element, offset + d));
      if (d < dim) {
        store(to + d, load_tail(rows.data, rows.element, offset + d, dim - d));
        d += kLanes;
      }
    }
    for (; d < padded_dim; d += kLanes) store(to + d, zero());
  }
}

// Writes from[count][padded_dim] * factor to rows [first, first + count); with `accumulate` (fp32 only), adds it.
inline void write_rows(const float* from, int64_t padded_dim, float factor, const OutputRows& rows, int64_t group,
                       int64_t first, int64_t count, int64_t dim, bool accumulate) {
  const Vec scale = broadcast(factor);
  for (int64_t r = 0; r < count; ++r, from += padded_dim) {
    const int64_t offset = row_offset(rows.head_stride, rows.row_stride, group, first + r);
    int64_t d = 0;
    for (; d + kLanes <= dim; d += kLanes) {
      Vec x = mul(load(from + d), scale);
      if (accumulate) x = add(x, load_converted(rows.data, rows.element, offset + d));
      store_converted(rows.data, rows.element, offset + d, x);
    }
    if (d == dim) continue;
    Vec x = mul(load(from + d), scale);
    if (accumulate) x = add(x, load_tail(rows.data, rows.element, offset + d, dim - d));
    store_tail(rows.data, rows.element, offset + d, dim - d, x);
  }
}

// Packs one tile of queries [kQueries][padded_dim] as [dim / kPairs][kQueries], for contraction over the head
// dimension. `columns` is scratch of [padded_dim][kQueries].
inline void pack_queries(const float* from, int64_t padded_dim, int64_t dim, float* columns, Operand* to) {
  float* const transposed = in_place_of(to, columns);
  transpose(from, padded_dim, kQueries, dim, transposed, kQueries);
  for (int64_t i = 0; kPairs > 1 && i < (dim + kPairs - 1) / kPairs * kQueries; i += kLanes) {
    Vec values[kPairs];
    for (int n = 0; n < kPairs; ++n)
      values[n] = load(transposed + (i / kQueries * kPairs + n) * kQueries + i % kQueries);
    store_key_operands(to + i, values);
  }
}

// Hands out scratch memory on cache line boundaries. With a null base it only counts bytes.
struct Scratch {
  char* base;
  int64_t used;

  template <class T>
  T* take(int64_t count) {
    char* piece = base == nullptr ? nullptr : base + used;
    used += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
    return reinterpret_cast<T*>(piece);
  }
};

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

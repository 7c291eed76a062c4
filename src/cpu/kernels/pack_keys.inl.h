// Packs key blocks for forward: K as [keys / kTileRows][steps][kTileRows], V as [dim_v / kTileRows][steps][kTileRows].
#pragma once

#include "cpu/kernels/panels.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

int64_t key_steps(const Shape& s) { return steps_of(s.dim_qk); }  // of a panel of K
int64_t operands_of_k(const Shape& s) { return kKeyBlock * key_steps(s); }
int64_t operands_of_v(const Shape& s) { return kKeyBlock / kPairs * round_up(s.dim_v, kTileRows); }

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

// kLanes columns of V from column d on, of the kPairs keys from `key` on; `row` is the first key's row, the next is
// `stride` bytes later. Columns from `dim` on and keys from `keys` on are zero.
template <Element kElement>
FOVEA_INLINE OperandVec load_values(const char* row, int64_t stride, int64_t d, int64_t dim, int64_t key,
                                    int64_t keys) {
  constexpr int64_t kWidth = kElement == Element::fp32 ? 4 : 2;
  alignas(64) char rows[2][kLanes * 4];
  row += d * kWidth;
  const char* next = row + stride;
  if (d + kLanes > dim || key + kPairs > keys) {
    const auto bytes = static_cast<uint64_t>(smaller(kLanes, dim - d) * kWidth);
    __builtin_memset(rows, 0, sizeof rows);
    if (key < keys) __builtin_memcpy(rows[0], row, bytes);
    if (key + 1 < keys && kPairs > 1) __builtin_memcpy(rows[1], next, bytes);
    row = rows[0], next = rows[1];
  }
  return load_key_operands<kElement>(row, next);
}

// Packs V as [dim_v / kTileRows][kKeyBlock / kPairs][kTileRows], in whole register tiles. Keys from `keys` on are zero.
template <Element kElement>
void pack_values(const InputRows& v, int64_t first_key, int64_t keys, int64_t dim, Operand* to) {
  constexpr int64_t kWidth = kElement == Element::fp32 ? 4 : 2, kPanel = kKeyBlock / kPairs * kTileRows;
  const int64_t stride = v.row_stride * kWidth;
  const char* from = static_cast<const char*>(v.data) + first_key * stride;
  for (int64_t key = 0; key < round_up(keys, kTileRows); key += kPairs, from += kPairs * stride, to += kTileRows) {
    for (int64_t d = 0; d < dim; d += kLanes)
      store_to_panels<0>(to + d / kTileRows * kPanel, kPanel, load_values<kElement>(from, stride, d, dim, key, keys),
                         dim - d);
  }
}

void pack_block(const Shape& shape, const InputRows& k, const InputRows& v, int64_t first_key, Operand* packed_k,
                Operand* packed_v) {
  const int64_t keys = smaller(kKeyBlock, shape.len_k - first_key);
  for (int64_t r = 0; r < keys; r += kTileRows, packed_k += key_steps(shape) * kTileRows)
    pack_rows<kTileRows>(k, first_key + r, smaller(kTileRows, keys - r), shape.dim_qk, packed_k);
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

// A packed key block. S = K Q reads K by key and dimension, O += V P reads V by dimension and key.
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

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

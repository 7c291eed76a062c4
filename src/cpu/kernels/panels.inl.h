// Packs the operands of a product as panels: [depth / kPairs][rows of a, or columns of b].
#pragma once

#include "cpu/kernels/tile.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int kPanelRows = kProductRows, kPanelColumns = kProductVectors * kLanes;
constexpr int kUnrolled = 4;       // steps; panels are padded to a multiple of them
constexpr int kLineOperands = 16;  // of a cache line
constexpr int64_t kLineBytes = 64;
constexpr int64_t kMostSteps = 384;  // KC: a panel of a fits L1, the panels of b of a tile fit L2

constexpr int64_t steps_of(int64_t depth) { return round_up((depth + kPairs - 1) / kPairs, kUnrolled); }

// A row as operands, rounded up to whole vectors.
constexpr int64_t operand_stride(int64_t dim) { return round_up(steps_of(dim), kLanes); }

FOVEA_INLINE Vec load_some(const void* data, Element element, int64_t index, int64_t count) {
  return count >= kLanes ? load_converted(data, element, index) : load_tail(data, element, index, count);
}

FOVEA_INLINE void store_some(void* data, Element element, int64_t index, int64_t count, Vec x) {
  if (count >= kLanes)
    store_converted(data, element, index, x);
  else
    store_tail(data, element, index, count, x);
}

// kLanes operands of a row from element k on, as bits. Pairs of bf16 have the same order in memory and in an operand.
FOVEA_INLINE Vec load_row(const InputRows& rows, int64_t row, int64_t k) {
  const int64_t index = row * rows.row_stride + k;
  if (kPairs == 1) return load_converted(rows.data, rows.element, index);
  return load(reinterpret_cast<const float*>(static_cast<const uint16_t*>(rows.data) + index));
}

// The same where the row ends at `depth`; zero from there on.
inline Vec load_row_end(const InputRows& rows, int64_t row, int64_t k, int64_t depth) {
  const int64_t count = depth - k;
  if (count >= kLanes * kPairs) return load_row(rows, row, k);
  const int64_t index = row * rows.row_stride + k;
  if (kPairs == 1) return load_tail(rows.data, rows.element, index, count);
  alignas(64) uint16_t copy[kLanes * 2] = {};
  __builtin_memcpy(copy, static_cast<const uint16_t*>(rows.data) + index, static_cast<uint64_t>(count) * 2);
  return load(reinterpret_cast<const float*>(copy));
}

// Reads rows [first, first + count) as operands into to[padded_count][stride]. The padding becomes zero.
void read_operand_rows(const InputRows& rows, int64_t group, int64_t first, int64_t count, int64_t dim, Operand* to,
                       int64_t padded_count, int64_t stride) {
  const InputRows one{rows.data, rows.element, 0, 0};
  for (int64_t r = 0; r < padded_count; ++r, to += stride) {
    int64_t s = 0;
    if (r < count) {
      const int64_t begin = row_offset(rows.head_stride, rows.row_stride, group, first + r);
      for (; s * kPairs < dim; s += kLanes)
        store(reinterpret_cast<float*>(to + s), load_row_end(one, 0, begin + s * kPairs, begin + dim));
    }
    for (; s < stride; s += kLanes) store(reinterpret_cast<float*>(to + s), zero());
  }
}

// Stores the first kWidth lanes; with `overlaps`, perhaps all of them.
template <int kWidth>
FOVEA_INLINE void store_lanes(Operand* to, Vec x, bool overlaps) {
  if (kWidth == kLanes || overlaps)
    store(reinterpret_cast<float*>(to), x);
  else
    __builtin_memcpy(to, &x, kWidth * sizeof(float));
}

// Transposes kLanes steps of kCount rows, the first of them `first`, into a panel of kWidth.
template <int kWidth, int kCount>
FOVEA_INLINE void pack_square(const InputRows& rows, int64_t first, int64_t count, int64_t k, int64_t depth,
                              int64_t steps, Operand* to) {
  Vec x[kLanes];
  if (count >= kCount && depth - k >= kLanes * kPairs) {
    FOVEA_UNROLL for (int i = 0; i < kLanes; ++i) x[i] = i < kCount ? load_row(rows, first + i, k) : zero();
  } else {
    for (int i = 0; i < kLanes; ++i) x[i] = i < kCount && i < count ? load_row_end(rows, first + i, k, depth) : zero();
  }
  transpose_square<1>(x);
  // A whole vector may reach into the panel's next step, which is written later.
  if (steps > kLanes) {
    FOVEA_UNROLL for (int i = 0; i < kLanes; ++i) store_lanes<kCount>(to + i * kWidth, x[i], kWidth < kLanes);
  } else {
    for (int i = 0; i < steps; ++i) store_lanes<kCount>(to + i * kWidth, x[i], false);
  }
}

// Transposes four steps of kCount rows, which are `stride` bytes apart, into a panel of kWidth: few registers suffice.
template <int kWidth, int kCount>
FOVEA_INLINE void pack_fours(const char* from, int64_t stride, Operand* to, bool overlaps) {
  const Vec a = load_fours<(kCount + 3) / 4>(from, 4 * stride);
  const Vec b = load_fours<(kCount + 2) / 4>(from + stride, 4 * stride);
  const Vec c = load_fours<(kCount + 1) / 4>(from + 2 * stride, 4 * stride);
  const Vec d = load_fours<kCount / 4>(from + 3 * stride, 4 * stride);
  constexpr typename CountedLanes<kLanes>::List lanes;
  const Vec ab_low = interleave<1, 0>(a, b, lanes), ab_high = interleave<1, 2>(a, b, lanes);
  const Vec cd_low = interleave<1, 0>(c, d, lanes), cd_high = interleave<1, 2>(c, d, lanes);
  store_lanes<kCount>(to, interleave<2, 0>(ab_low, cd_low, lanes), overlaps);
  store_lanes<kCount>(to + kWidth, interleave<2, 2>(ab_low, cd_low, lanes), overlaps);
  store_lanes<kCount>(to + 2 * kWidth, interleave<2, 0>(ab_high, cd_high, lanes), overlaps);
  store_lanes<kCount>(to + 3 * kWidth, interleave<2, 2>(ab_high, cd_high, lanes), overlaps);
}

// Transposes the steps of kCount rows, one cache line of each row at a time; `steps` is a multiple of 4. Prefetches the
// next kCount rows, since a row is too short for the hardware prefetcher.
template <int kWidth, int kCount>
FOVEA_INLINE void pack_strip(const char* from, int64_t stride, int64_t steps, Operand* to) {
  for (int64_t s = 0; s < steps; s += kLineOperands) {
    for (int r = 0; r < kCount; ++r) __builtin_prefetch(from + (kCount + r) * stride + s * 4, 0, 2);
    for (int64_t i = s; i < smaller(steps, s + kLineOperands); i += 4)
      pack_fours<kWidth, kCount>(from + i * 4, stride, to + i * kWidth, kWidth < kLanes && i + 4 < steps);
  }
}

// The same for all rows of a panel. Returns the number of steps that it packed.
template <int kWidth>
FOVEA_INLINE int64_t pack_whole_rows(const InputRows& rows, int64_t first, int64_t depth, Operand* to) {
  constexpr int kRest = kWidth % kLanes, kWhole = kWidth - kRest;
  const int64_t steps = depth / kPairs / 4 * 4, stride = rows.row_stride * (4 / kPairs);
  const char* const from = static_cast<const char*>(rows.data) + first * stride;
  for (int r = 0; r < kWhole; r += kLanes) pack_strip<kWidth, kLanes>(from + r * stride, stride, steps, to + r);
  if (kRest > 0) pack_strip<kWidth, kRest>(from + kWhole * stride, stride, steps, to + kWhole);
  return steps;
}

// For rows that are contiguous along K: transposes `count` of them into a panel.
template <int kWidth>
FOVEA_INLINE void pack_rows(const InputRows& rows, int64_t first, int64_t count, int64_t depth, Operand* to) {
  constexpr int kRest = kWidth % kLanes, kWhole = kWidth - kRest;
  const int64_t steps = steps_of(depth);
  const bool holds_operands = kPairs == 2 || rows.element == Element::fp32;
  const int64_t packed = holds_operands && count == kWidth ? pack_whole_rows<kWidth>(rows, first, depth, to) : 0;
  for (int64_t s = packed; s < steps; s += kLanes) {
    const int64_t k = s * kPairs;
    Operand* const part = to + s * kWidth;
    for (int r = 0; r < kWhole; r += kLanes)
      pack_square<kWidth, kLanes>(rows, first + r, count - r, k, depth, steps - s, part + r);
    if (kRest > 0)
      pack_square<kWidth, kRest == 0 ? 1 : kRest>(rows, first + kWhole, count - kWhole, k, depth, steps - s,
                                                  part + kWhole);
  }
}

// One step of a panel from kPairs rows that are contiguous along the panel.
template <int kWidth>
FOVEA_INLINE void pack_step(const InputRows& rows, int64_t k, int64_t depth, int64_t first, int64_t count,
                            Operand* to) {
  alignas(64) Operand step[round_up(kWidth, kLanes)];
  for (int n = 0; n < kWidth; n += kLanes) {
    Vec values[kPairs];
    for (int p = 0; p < kPairs; ++p) {
      const bool is_given = k + p < depth && n < count;
      const int64_t index = (k + p) * rows.row_stride + first + n;
      values[p] = is_given ? load_some(rows.data, rows.element, index, count - n) : zero();
    }
    store_key_operands(step + n, values);
  }
  __builtin_memcpy(to, step, kWidth * sizeof(Operand));
}

// Packs `depth` rows into neighbouring panels, kSteps steps at a time, so that whole cache lines are written while the
// rows are read in order.
template <int kWidth>
FOVEA_INLINE void pack_columns(const InputRows& rows, int64_t count, int64_t depth, int64_t panel_stride, Operand* to) {
  constexpr int64_t kSteps = 8, kAhead = 4096;  // elements, enough to hide the latency of memory
  const int64_t ahead = divide_up(kAhead, count * kSteps) * kSteps * rows.row_stride;
  const int64_t steps = steps_of(depth);
  const bool holds_operands = kPairs == 1 && rows.element == Element::fp32;
  for (int64_t s = 0; s < steps; s += kSteps) {
    for (int64_t first = 0; first < count; first += kWidth) {
      Operand* const panel = to + first / kWidth * panel_stride;
      if (holds_operands && first + kWidth <= count && s + kSteps <= depth) {
        const float* from = static_cast<const float*>(rows.data) + s * rows.row_stride + first;
        FOVEA_UNROLL for (int i = 0; i < kSteps; ++i, from += rows.row_stride) {
          __builtin_memcpy(panel + (s + i) * kWidth, from, kWidth * sizeof(float));
          FOVEA_UNROLL for (int n = 0; n < kWidth; n += kLineOperands) { __builtin_prefetch(from + ahead + n); }
        }
        continue;
      }
      for (int64_t i = s; i < smaller(steps, s + kSteps); ++i) {
        pack_step<kWidth>(rows, i * kPairs, depth, first, count - first, panel + i * kWidth);
      }
    }
  }
}

template <int kWidth>
void pack_operand(const PanelTask& t) {
  auto* const to = static_cast<Operand*>(t.to);
  if (!t.along_rows) return pack_columns<kWidth>(t.from, t.count, t.depth, t.panel_stride, to);
  for (int64_t first = 0; first < t.count; first += kWidth)
    pack_rows<kWidth>(t.from, first, smaller(kWidth, t.count - first), t.depth, to + first / kWidth * t.panel_stride);
}

void pack_panels(const PanelTask& t) { t.of_b ? pack_operand<kPanelColumns>(t) : pack_operand<kPanelRows>(t); }

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

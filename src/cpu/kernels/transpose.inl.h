// Transposes rows of floats, one square of kLanes x kLanes in registers at a time.
#pragma once

namespace fovea::cpu::FOVEA_TARGET {
namespace {

#define FOVEA_UNROLL _Pragma("GCC unroll 16")

template <int... kLane>
struct LaneList {};
template <int kCount, int... kLane>
struct CountedLanes : CountedLanes<kCount - 1, kCount - 1, kLane...> {};
template <int... kLane>
struct CountedLanes<0, kLane...> {
  using List = LaneList<kLane...>;
};

// Two rows that are kStep apart form 2 x 2 blocks of kStep lanes. Swaps the off-diagonal blocks.
template <int kStep, int... kLane>
FOVEA_INLINE void exchange(Vec& upper, Vec& lower, LaneList<kLane...>) {
  const Vec a = upper, b = lower;
  upper = __builtin_shufflevector(a, b, ((kLane & kStep) != 0 ? kLanes + kLane - kStep : kLane)...);
  lower = __builtin_shufflevector(a, b, ((kLane & kStep) != 0 ? kLanes + kLane : kLane + kStep)...);
}

// In each four lanes: two of a and of b, kStep in turn, from lane kFirst of the four on.
template <int kStep, int kFirst, int... kLane>
FOVEA_INLINE Vec interleave(Vec a, Vec b, LaneList<kLane...>) {
  return __builtin_shufflevector(
      a, b,
      ((kLane & kStep) * (kLanes / kStep) + (kLane & ~3) + kFirst + (kStep == 1 ? (kLane & 3) / 2 : kLane & 1))...);
}

template <int kStep>
FOVEA_INLINE void transpose_square(Vec (&x)[kLanes]) {
  if constexpr (kStep < kLanes) {
    FOVEA_UNROLL for (int i = 0; i < kLanes; ++i) {
      if ((i & kStep) == 0) exchange<kStep>(x[i], x[i + kStep], typename CountedLanes<kLanes>::List{});
    }
    transpose_square<2 * kStep>(x);
  }
}

// to[column][row] = from[row][column]. `rows` and `columns` are rounded up to multiples of kLanes; both buffers must
// be that large.
void transpose(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to, int64_t to_stride) {
  for (int64_t r = 0; r < rows; r += kLanes) {
    for (int64_t c = 0; c < columns; c += kLanes) {
      Vec x[kLanes];
      FOVEA_UNROLL for (int i = 0; i < kLanes; ++i) x[i] = load(from + (r + i) * from_stride + c);
      transpose_square<1>(x);
      FOVEA_UNROLL for (int i = 0; i < kLanes; ++i) store(to + (c + i) * to_stride + r, x[i]);
    }
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

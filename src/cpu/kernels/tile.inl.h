// The register tile that all products use, and the keys that a query row sees.
#pragma once

#include "cpu/kernels/rows.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int64_t kKeyBlock = 192;  // a multiple of every tile's rows; P of a block takes 9 to 36 KB

template <int M, int N>
FOVEA_INLINE void clear(Vec (&x)[M][N]) {
  FOVEA_UNROLL for (int m = 0; m < M; ++m) { FOVEA_UNROLL for (int n = 0; n < N; ++n) x[m][n] = zero(); }
}

// x[m][n] += sum over s < steps of a[m * a_row + s * a_step] * b[s * b_step + n * kLanes ...]
template <int M, int N>
FOVEA_INLINE void multiply(Vec (&x)[M][N], const Operand* a, int64_t a_row, int64_t a_step, const Operand* b,
                           int64_t b_step, int64_t steps) {
  for (int64_t s = 0; s < steps; ++s, a += a_step, b += b_step) {
    OperandVec lanes[N];
    FOVEA_UNROLL for (int n = 0; n < N; ++n) lanes[n] = load_operands(b + n * kLanes);
    FOVEA_UNROLL for (int m = 0; m < M; ++m) {
      const OperandVec row = broadcast_operand(a + m * a_row);
      FOVEA_UNROLL for (int n = 0; n < N; ++n) x[m][n] = multiply_add(row, lanes[n], x[m][n]);
    }
  }
}

// 2^(x factor) for products of at most 128. Very negative x, -infinity included, gives 0 unless `least` is clamped to
// the range of fp32.
struct Exponential {
  Vec factor, least;

  explicit Exponential(float f)
      : factor(broadcast(f)), least(max(broadcast(-3.4e38f), broadcast(kLeastExponent / f))) {}
  FOVEA_INLINE Vec operator()(Vec x) const { return exp2(max(least, x), factor); }
};

// P of a score and lse. Subtracting lse before exp makes the rounding error relative to the difference, even if scores
// are large.
struct Probability {
  static constexpr float kLog2E = 1.44269504f;
  static constexpr float kLargestDifference = 88.72f;  // exp overflows above it; positive only if lse does not fit
  Vec scale, rest;
  Exponential exponential;

  explicit Probability(const Shape& shape)
      : scale(broadcast(shape.scale_hi)), rest(broadcast(shape.scale_lo)), exponential(kLog2E) {}
  FOVEA_INLINE Vec operator()(Vec score, Vec lse) const {
    return exponential(min(broadcast(kLargestDifference), fma(score, rest, fms(score, scale, lse))));
  }
};

constexpr float kRescaleThreshold = 8.0f;  // in log2: a maximum rises beyond it, so P stays below 2^8

// lse of a row from its maximum and the sum of its P; NaN for a sum of 0: every visible score is -infinity.
inline float log_sum(const Shape& shape, float maximum, float sum) {
  if (sum == 0) return __builtin_nanf("");
  const double scale = static_cast<double>(shape.scale_hi) + static_cast<double>(shape.scale_lo);
  return static_cast<float>(static_cast<double>(maximum) * scale + __builtin_log(static_cast<double>(sum)));
}

// Keys [begin, end); empty if begin >= end.
struct Interval {
  int64_t begin, end;
};

inline Interval visible_keys(const Shape& shape, int64_t row) {
  const int64_t position = shape.group == 1 ? row : row / shape.group;
  return {larger(0, position + shape.window_begin), smaller(shape.len_k, position + shape.window_end)};
}

// The keys that each lane of a query tile sees. Lanes beyond the last row repeat the last row.
struct Visibility {
  Interval lane[kQueries];
  Interval any;     // keys that at least one lane sees
  Interval common;  // keys that all lanes see
};

inline void find_visible(const Shape& shape, int64_t first_row, int64_t rows, Visibility& v) {
  v.any = {shape.len_k, 0};
  v.common = {0, shape.len_k};
  for (int64_t w = 0; w < kQueries; ++w) {
    const Interval keys = w < rows ? visible_keys(shape, first_row + w) : v.lane[w - 1];
    v.lane[w] = keys;
    v.common = {larger(v.common.begin, keys.begin), smaller(v.common.end, keys.end)};
    if (keys.begin < keys.end) v.any = {smaller(v.any.begin, keys.begin), larger(v.any.end, keys.end)};
  }
}

// The lanes' intervals of visible keys, relative to one key block; as floats, so that lanes compare key positions.
struct EdgeMask {
  alignas(64) float begin[kQueries];
  alignas(64) float end[kQueries];

  void set(const Visibility& v, int64_t first_key) {
    for (int w = 0; w < kQueries; ++w) {
      begin[w] = static_cast<float>(larger(0, smaller(kKeyBlock, v.lane[w].begin - first_key)) - 1);
      end[w] = static_cast<float>(larger(0, smaller(kKeyBlock, v.lane[w].end - first_key)));
    }
  }

  Mask sees(int64_t key, int n) const {
    const Vec position = broadcast(static_cast<float>(key));
    return both(less(load(begin + n * kLanes), position), less(position, load(end + n * kLanes)));
  }
};

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

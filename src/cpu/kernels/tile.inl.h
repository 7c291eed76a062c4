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

constexpr float kRescaleThreshold = 8.0f;  // in log2: a maximum rises beyond it, so P stays below 2^8

inline double scaled_score(const Shape& shape, float score) {
  return static_cast<double>(score) * (static_cast<double>(shape.scale_hi) + static_cast<double>(shape.scale_lo));
}

// Whether one fma computes the exponent of P from a score. In bf16, P of the largest score need not be exactly 1 before
// it is rounded. The product of the maximum and the scale is rounded alike for all keys of a lane, so only lse must
// know that (log_sum_origin). Above 1, a product could overflow.
FOVEA_INLINE bool fuses_scale(const Shape& shape) { return kBf16Dot && shape.log2_scale <= 1.0f; }

// The scaled score at which P is 1.
inline double log_sum_origin(const Shape& shape, float maximum) {
  constexpr double kLn2 = 0.69314718055994530942;
  const double origin = scaled_score(shape, maximum);
  if (!fuses_scale(shape)) return origin;
  alignas(64) float exponent[kLanes];  // of the largest score
  const Vec score = broadcast(maximum), factor = broadcast(shape.log2_scale);
  store(exponent, fms(score, factor, mul(score, factor)));
  return origin - kLn2 * static_cast<double>(exponent[0]);
}

// lse of a row from the sum of its P and the scaled score at which P is 1; NaN for a sum of 0: every visible score is
// -infinity.
inline float log_sum(double origin, float sum) {
  if (sum == 0) return __builtin_nanf("");
  return static_cast<float>(origin + __builtin_log(static_cast<double>(sum)));
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

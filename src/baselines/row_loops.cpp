// The loops of RowPasses, compiled once for each instruction set (FOVEA_ROW_TARGET); the compiler vectorises them.
// All but the table has internal linkage. Otherwise the linker could keep a copy that the processor cannot run.
#include "baselines/row_passes.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace fovea::baselines {
namespace {

constexpr float kInfinity = __builtin_inff();

// e^x for x <= 88. Cody-Waite: x = n ln 2 + r, and e^r by a polynomial of degree 6 with relative error 2e-9 before
// rounding. Results below the smallest normal number become 0.
inline float exponential(float x) {
  constexpr float kLog2e = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float clamped = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);
  const float n = (clamped * kLog2e + kRounder) - kRounder;
  const float f = ((clamped - n * kLn2High) - n * kLn2Low) * kLog2e;
  float p = 1.53458074e-4f;
  p = p * f + 1.33999312e-3f;
  p = p * f + 9.61848897e-3f;
  p = p * f + 5.55032878e-2f;
  p = p * f + 2.40226469e-1f;
  p = p * f + 6.93147206e-1f;
  p = p * f + 1.0f;
  const float power = __builtin_bit_cast(float, (static_cast<std::int32_t>(n) + 127) << 23);
  return x < -87.0f ? 0.0f : p * power;
}

void scale(float* row, std::int64_t count, float factor) {
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j) row[j] *= factor;
}

void fill(float* row, std::int64_t begin, std::int64_t end, float value) {
  for (std::int64_t j = begin; j < end; ++j) row[j] = value;
}

void hide(float* row, std::int64_t count, std::int64_t begin, std::int64_t end) {
  fill(row, 0, begin, -kInfinity);
  fill(row, end, count, -kInfinity);
}

// The score with the largest factor * score. Without a score, the infinity for which factor * score is -infinity.
float origin_of(const float* row, std::int64_t begin, std::int64_t end, float factor) {
  const float sign = factor < 0.0f ? -1.0f : 1.0f;
  float most = -kInfinity;
#pragma omp simd reduction(max : most)
  for (std::int64_t j = begin; j < end; ++j) {
    const float score = row[j] * sign;
    most = score > most ? score : most;
  }
  return most * sign;
}

bool is_fully_masked(float origin, float factor) { return origin == (factor < 0.0f ? kInfinity : -kInfinity); }

float masked_softmax(float* row, std::int64_t count, std::int64_t begin, std::int64_t end, float factor) {
  fill(row, 0, begin, 0.0f);
  fill(row, end, count, 0.0f);
  const float origin = origin_of(row, begin, end, factor);
  if (is_fully_masked(origin, factor)) {
    fill(row, begin, end, 0.0f);
    return -kInfinity;
  }
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = begin; j < end; ++j) {
    const float e = exponential((row[j] - origin) * factor);
    row[j] = e;
    sum += e;
  }
  scale(row + begin, end - begin, 1.0f / sum);
  return origin * factor + __builtin_logf(sum);
}

float softmax(float* row, std::int64_t count) { return masked_softmax(row, count, 0, count, 1.0f); }

LogSumExp log_sum_exp(const float* row, std::int64_t begin, std::int64_t end, float factor) {
  const float origin = origin_of(row, begin, end, factor);
  if (is_fully_masked(origin, factor)) return {0.0f, -kInfinity};
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = begin; j < end; ++j) sum += exponential((row[j] - origin) * factor);
  return {origin, __builtin_logf(sum)};
}

void exponentials(float* row, std::int64_t count, std::int64_t begin, std::int64_t end, float factor, LogSumExp lse) {
  fill(row, 0, begin, 0.0f);
  fill(row, end, count, 0.0f);
  if (lse.log_sum == -kInfinity) return fill(row, begin, end, 0.0f);
#pragma omp simd
  for (std::int64_t j = begin; j < end; ++j) row[j] = exponential((row[j] - lse.origin) * factor - lse.log_sum);
}

void softmax_gradient(float* row, const float* probabilities, std::int64_t count, float delta, float factor) {
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j) row[j] = probabilities[j] * (row[j] - delta) * factor;
}

float weighted_mean(const float* row, const float* probabilities, std::int64_t count) {
  float sum = 0.0f, total = 0.0f;
#pragma omp simd reduction(+ : sum, total)
  for (std::int64_t j = 0; j < count; ++j) {
    sum += probabilities[j] * row[j];
    total += probabilities[j];
  }
  return total > 0.0f ? sum / total : 0.0f;
}

float dot(const float* a, const float* b, std::int64_t count) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < count; ++j) sum += a[j] * b[j];
  return sum;
}

void widen_bf16(float* to, const std::uint16_t* from, std::int64_t count) {
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j) to[j] = __builtin_bit_cast(float, static_cast<std::uint32_t>(from[j]) << 16);
}

void narrow_bf16(std::uint16_t* to, const float* from, std::int64_t count) {
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j) {
    const auto bits = __builtin_bit_cast(std::uint32_t, from[j]);
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16, quiet = (bits >> 16) | 0x40u;
    to[j] = static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
}

void widen_fp16(float* to, const std::uint16_t* from, std::int64_t count) {
  std::int64_t j = 0;
#if defined(__F16C__)
  for (; j + 8 <= count; j += 8)
    _mm256_storeu_ps(to + j, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + j))));
#endif
  for (; j < count; ++j) {
    const std::uint32_t sign = (from[j] & 0x8000u) << 16, magnitude = from[j] & 0x7fffu;
    const float shifted = __builtin_bit_cast(float, magnitude << 13) * 0x1p112f;  // exact, subnormals included
    const std::uint32_t special = 0x7f800000u | ((magnitude & 0x3ffu) << 13);     // infinity and NaN
    to[j] =
        __builtin_bit_cast(float, sign | (magnitude >= 0x7c00u ? special : __builtin_bit_cast(std::uint32_t, shifted)));
  }
}

// core::float_to_fp16 explains each branch.
std::uint16_t narrow_one_fp16(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    const float rounded = __builtin_bit_cast(float, magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (__builtin_bit_cast(std::uint32_t, rounded) - 0x3f000000u));
  }
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
}

void narrow_fp16(std::uint16_t* to, const float* from, std::int64_t count) {
  std::int64_t j = 0;
#if defined(__F16C__)
  for (; j + 8 <= count; j += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + j), _mm256_cvtps_ph(_mm256_loadu_ps(from + j), 0));
#endif
  for (; j < count; ++j) to[j] = narrow_one_fp16(from[j]);
}

}  // namespace

extern const RowPasses FOVEA_ROW_TARGET;
const RowPasses FOVEA_ROW_TARGET = {
    scale,         hide, softmax,    log_sum_exp, exponentials, masked_softmax, softmax_gradient,
    weighted_mean, dot,  widen_bf16, widen_fp16,  narrow_bf16,  narrow_fp16};

}  // namespace fovea::baselines

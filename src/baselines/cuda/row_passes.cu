// Passes over rows of scores. If the registers of 512 threads can hold a row, it is read once and
// written once. Longer rows go in chunks; the softmax does not take them, and log_sum_exp and exponentials replace it.
// A thread reads and writes the same columns, so results may be in place.
#include "baselines/cuda/row.cuh"

namespace fovea::cuda::baselines {
namespace {

template <int kVector>
constexpr int kCtasPerSm = kVector == 4 ? 2 : 1;  // with single elements, two would need too many registers
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
template <int kVector>
constexpr int kCtasPerSmLarge = 1;  // log_sum_exp and softmax_gradient need more registers here
#else
template <int kVector>
constexpr int kCtasPerSmLarge = kCtasPerSm<kVector>;
#endif

template <int kVector>
using Scores = ThreadColumns<kVector, kRowValues / kVector>;
template <int kVector>
using HalfScores = ThreadColumns<kVector, kRowValues / kVector / 2>;

// exp(scaled difference from the row's largest score); a masked score's -inf gives 0. Scaling after the subtraction
// makes the largest result exactly 1, even if scores are large. Results that are rounded to 16 bits use the approximate
// exp2.
template <class Element>
struct Exponential {
  float scale;
  explicit __device__ __forceinline__ Exponential(const RowPass& p)
      : scale(std::is_same_v<Element, float> ? p.abs_scale : p.abs_scale * kLog2e) {}
  __device__ __forceinline__ float operator()(float difference) const {
    if constexpr (std::is_same_v<Element, float>)
      return expf(difference * scale);
    else
      return ptx::exp2_approx(difference * scale);
  }
};

// exp(x) for x <= 0, within 1 ulp; 0 for x < -87. If all scores of a row are equal, its probabilities have equal
// errors; with expf's errors, three equal scores missed the bound.
__device__ __forceinline__ float exp_within_one_ulp(float x) {
  if (x < -87.0f) return 0.0f;
  const float n = rintf(x * kLog2e);
  const float r = fmaf(n, -1.42860677e-6f, fmaf(n, -0.693145752f, x));  // ln 2 in two parts
  float sum = 1.0f / 5040;
  sum = fmaf(sum, r, 1.0f / 720);
  sum = fmaf(sum, r, 1.0f / 120);
  sum = fmaf(sum, r, 1.0f / 24);
  sum = fmaf(sum, r, 1.0f / 6);
  sum = fmaf(sum, r, 0.5f);
  sum = fmaf(sum, r, 1.0f);
  sum = fmaf(sum, r, 1.0f);
  return sum * __int_as_float((static_cast<int>(n) + 127) << 23);
}

template <int kVector>
__device__ __forceinline__ void load_scores(Scores<kVector>& columns, const RowPass& p, const Row& row, int end,
                                            int chunk, int thread) {
  columns.set_columns(end, chunk, thread, p.threads);
  columns.load(row.of<float>(p.scores), end, -kInfinity * p.sign);
  if (p.sign < 0.0f) columns.each([&](int s, int i) { columns.values[s][i] *= -1.0f; });
}

// The largest of these scores and `before`.
template <int kVector>
__device__ __forceinline__ float largest(Scores<kVector>& columns, float before) {
  columns.each([&](int s, int i) { before = fmaxf(before, columns.values[s][i]); });
  return before;
}

// Replaces scores by exp(score - maximum); returns their sum.
template <class Exp, int kVector>
__device__ __forceinline__ float exponentiate(Scores<kVector>& columns, float maximum, const Exp& exp) {
  float sum = 0.0f;
  columns.each([&](int s, int i) { sum += columns.values[s][i] = exp(columns.values[s][i] - maximum); });
  return sum;
}

__device__ __forceinline__ float lse_of(float maximum, float sum, const RowPass& p) {
  return sum == 0.0f ? -kInfinity : fmaf(maximum, p.abs_scale, logf(sum));
}

template <class Element, int kVector>
__global__ void __launch_bounds__(kMostRowThreads, kCtasPerSm<kVector>) softmax(const __grid_constant__ RowPass p) {
#pragma unroll 1
  for (RowCursor at(p.threads); at.row < p.rows; at.advance(p.threads)) {
    const Row row(p, at.row);
    Scores<kVector> columns;
    load_scores(columns, p, row, end_of_keys(p, row), 0, at.thread);
    const float maximum = finite_max(row_max(largest(columns, -kInfinity), p.threads));
    const float sum = row_sum(exponentiate(columns, maximum, Exponential<Element>(p)), p.threads);
    if (p.lse.data != nullptr && at.thread == 0) *element_of_row<float>(p.lse, p, row) = lse_of(maximum, sum, p);
    const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
    columns.each([&](int s, int i) { columns.values[s][i] *= inverse; });
    columns.store(row.of<Element>(p.to), p.len_k);
  }
}

template <int kVector>
__global__ void __launch_bounds__(kMostRowThreads, kCtasPerSmLarge<kVector>)
    log_sum_exp(const __grid_constant__ RowPass p) {
#pragma unroll 1
  for (RowCursor at(p.threads); at.row < p.rows; at.advance(p.threads)) {
    const Row row(p, at.row);
    const int end = end_of_keys(p, row), chunks = Scores<kVector>::chunks(end, p.threads);
    Scores<kVector> columns;
    float own_maximum = -kInfinity;
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      load_scores(columns, p, row, end, chunk, at.thread);
      own_maximum = largest(columns, own_maximum);
    }
    const float maximum = finite_max(row_max(own_maximum, p.threads));
    float sum = 0.0f;
#pragma unroll 1
    for (int chunk = chunks - 1;;) {  // the last chunk is still in registers
      sum += exponentiate(columns, maximum, Exponential<float>(p));
      if (--chunk < 0) break;
      load_scores(columns, p, row, end, chunk, at.thread);
    }
    sum = row_sum(sum, p.threads);
    if (at.thread != 0) continue;
    // Every probability of the row inherits the logarithm's error, so the rounding error is kept too.
    const double logarithm = log(double{sum});
    const float rounded = sum == 0.0f ? -kInfinity : static_cast<float>(logarithm);
    p.log_sum_exps[row.index] = {maximum, rounded,
                                 sum == 0.0f ? 0.0f : static_cast<float>(logarithm - double{rounded})};
    if (p.lse.data != nullptr) *element_of_row<float>(p.lse, p, row) = lse_of(maximum, sum, p);
  }
}

template <class Element, int kVector>
__global__ void __launch_bounds__(kMostRowThreads, kCtasPerSm<kVector>)
    exponentials(const __grid_constant__ RowPass p) {
  RowCursor at(p.threads);
  const int chunks = HalfScores<kVector>::chunks(p.len_k, p.threads);
#pragma unroll 1
  for (; at.row < p.rows; at.advance(p.threads)) {
    const Row row(p, at.row);
    const LogSumExp lse = p.log_sum_exps != nullptr
                              ? p.log_sum_exps[row.index]
                              : LogSumExp{0.0f, *element_of_row<const float>(p.given_lse, p, row), 0.0f};
    const int end = lse.log_sum == -kInfinity ? 0 : end_of_keys(p, row);
    const float maximum = lse.maximum * p.sign, masked = -kInfinity * p.sign;
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      HalfScores<kVector> columns;
      columns.set_columns(end, chunk, at.thread, p.threads);
      columns.load(row.of<float>(p.scores), end, masked);
      columns.each([&](int s, int i) {
        float& v = columns.values[s][i];
        const float probability = exp_within_one_ulp(fmaf(v - maximum, p.factor, -lse.log_sum));
        v = v == masked ? 0.0f : fmaf(-lse.rounding, probability, probability);
      });
      columns.store(row.of<Element>(p.to), p.len_k);
    }
  }
}

template <class Probability, class Element, int kVector>
__global__ void __launch_bounds__(kMostRowThreads, kCtasPerSmLarge<kVector>)
    softmax_gradient(const __grid_constant__ RowPass p) {
  using Half = HalfScores<kVector>;
  RowCursor at(p.threads);
  const int chunks = Half::chunks(p.len_k, p.threads);
#pragma unroll 1
  for (; at.row < p.rows; at.advance(p.threads)) {
    const Row row(p, at.row);
    const int end = end_of_keys(p, row);
    Half dp, probabilities;
    const auto load = [&](int chunk) {
      dp.set_columns(end, chunk, at.thread, p.threads);
      probabilities.set_columns(end, chunk, at.thread, p.threads);
      dp.load(row.of<float>(p.scores), end, 0.0f);
      probabilities.load(row.of<const Probability>(p.probabilities), end, 0.0f);
    };
    float2 sums = {0.0f, 0.0f};  // of P * dP, and of P
#pragma unroll 1
    for (int chunk = p.delta != nullptr ? 0 : Half::chunks(end, p.threads) - 1; chunk >= 0; --chunk) {
      load(chunk);
      dp.each([&](int s, int i) {
        const float probability = probabilities.values[s][i];
        sums = {fmaf(probability, dp.values[s][i], sums.x), sums.y + probability};
      });
    }
    float delta = 0.0f;
    if (p.delta != nullptr) {
      delta = p.delta[row.sequence * p.delta_stride + row.query];
    } else {
      sums = row_sums(sums, p.threads);
      delta = sums.y > 0.0f ? sums.x / sums.y : 0.0f;
    }
#pragma unroll 1
    for (int chunk = 0;;) {
      dp.each([&](int s, int i) {
        float& g = dp.values[s][i];
        g = probabilities.values[s][i] * (g - delta) * p.factor;
      });
      dp.store(row.of<Element>(p.to), p.len_k);
      if (++chunk == chunks) break;
      load(chunk);
    }
  }
}

template <class Element, int kVector>
__global__ void __launch_bounds__(kMostRowThreads, kCtasPerSm<kVector>) scale(const __grid_constant__ RowPass p) {
  RowCursor at(p.threads);
  const int chunks = Scores<kVector>::chunks(p.len_k, p.threads);
#pragma unroll 1
  for (; at.row < p.rows; at.advance(p.threads)) {
    const Row row(p, at.row);
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      Scores<kVector> columns;
      columns.set_columns(p.len_k, chunk, at.thread, p.threads);
      columns.load(row.of<float>(p.scores), p.len_k, 0.0f);
      columns.each([&](int s, int i) { columns.values[s][i] *= p.factor; });
      columns.store(row.of<Element>(p.to), p.len_k);
    }
  }
}

__global__ void __launch_bounds__(kMostRowThreads) mask(const __grid_constant__ RowPass p) {
#pragma unroll 1
  for (RowCursor at(p.threads); at.row < p.rows; at.advance(p.threads)) {
    const Row row(p, at.row);
    float* const scores = row.of<float>(p.scores);
#pragma unroll 4
    for (int column = max(0, end_of_keys(p, row)) + at.thread; column < p.len_k; column += p.threads)
      scores[column] = -kInfinity;
  }
}

template <class Element, int kVector>
const void* kernel_of(Step step, bool fp32_result) {
  switch (step) {
    case Step::scale:
      return reinterpret_cast<const void*>(&scale<Element, kVector>);
    case Step::mask:
      return reinterpret_cast<const void*>(&mask);
    case Step::softmax:
      return reinterpret_cast<const void*>(&softmax<Element, kVector>);
    case Step::log_sum_exp:
      return reinterpret_cast<const void*>(&log_sum_exp<kVector>);
    case Step::exponentials:
      return reinterpret_cast<const void*>(&exponentials<Element, kVector>);
    case Step::softmax_gradient:
      return fp32_result ? reinterpret_cast<const void*>(&softmax_gradient<Element, float, kVector>)
                         : reinterpret_cast<const void*>(&softmax_gradient<Element, Element, kVector>);
  }
  return nullptr;
}

template <class Element>
const void* kernel_of(Step step, bool fp32_result, bool vector) {
  return vector ? kernel_of<Element, 4>(step, fp32_result) : kernel_of<Element, 1>(step, fp32_result);
}

}  // namespace

const void* row_pass_kernel(Step step, ElementKind element, ElementKind to, bool vector) {
  switch (element) {
    case ElementKind::fp32:
      return kernel_of<float>(step, false, vector);
    case ElementKind::bf16:
      return kernel_of<__nv_bfloat16>(step, to == ElementKind::fp32, vector);
    case ElementKind::fp16:
      return kernel_of<__half>(step, to == ElementKind::fp32, vector);
  }
  return nullptr;
}

}  // namespace fovea::cuda::baselines

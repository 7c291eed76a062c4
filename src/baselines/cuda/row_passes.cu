// Passes over rows of scores, bound by memory: what the registers of 512 threads hold of a row is read once, kept there
// and written once. Longer rows go in chunks; the softmax takes none of these, log_sum_exp and exponentials do its
// work. A thread reads and writes the same columns: results may stand in place.
#include "baselines/cuda/row.cuh"

namespace fovea::cuda::baselines {
namespace {

template <int kVector>
constexpr int kBlocksAtOnce = kVector == 4 ? 2 : 1;  // single elements take registers too many for two
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
template <int kVector>
constexpr int kWideBlocksAtOnce = 1;  // code for some kernels takes more here
#else
template <int kVector>
constexpr int kWideBlocksAtOnce = kBlocksAtOnce<kVector>;
#endif

template <int kVector>
using Scores = Part<kVector, kRowValues / kVector>;
template <int kVector>
using HalfScores = Part<kVector, kRowValues / kVector / 2>;

// Relative to the largest score of a row: a hidden one's -inf gives 0. The difference is taken before it is scaled: the
// largest weight is then exactly 1, however large the scores are. What is rounded to 16 bits needs no exponential that
// is good to 24.
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

// The exponential of what is not above 1, good to a unit of the last place: where all scores of a row are equal, so are
// the errors of its weights, and with those of expf three equal scores missed the bound. Below 2^-126 it is 0.
__device__ __forceinline__ float exponential_to_a_unit(float x) {
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
__device__ __forceinline__ void load_scores(Scores<kVector>& part, const RowPass& p, const Row& row, int end, int chunk,
                                            int thread) {
  part.place(end, chunk, thread, p.threads);
  part.load(row.of<float>(p.scores), end, -kInfinity * p.sign);
  if (p.sign < 0.0f) part.each([&](int s, int i) { part.values[s][i] *= -1.0f; });
}

// The largest of these scores and those before.
template <int kVector>
__device__ __forceinline__ float largest(Scores<kVector>& part, float before) {
  part.each([&](int s, int i) { before = fmaxf(before, part.values[s][i]); });
  return before;
}

// Scores become weights; returns their sum.
template <class Weight, int kVector>
__device__ __forceinline__ float weigh(Scores<kVector>& part, float reference, const Weight& weight) {
  float sum = 0.0f;
  part.each([&](int s, int i) { sum += part.values[s][i] = weight(part.values[s][i] - reference); });
  return sum;
}

__device__ __forceinline__ float lse_of(float reference, float sum, const RowPass& p) {
  return sum == 0.0f ? -kInfinity : fmaf(reference, p.abs_scale, logf(sum));
}

template <class Element, int kVector>
__global__ void __launch_bounds__(kMostRowThreads, kBlocksAtOnce<kVector>) softmax(const __grid_constant__ RowPass p) {
#pragma unroll 1
  for (RowCursor at(p.threads); at.row < p.rows; at.advance(p.threads)) {
    const Row row(p, at.row);
    Scores<kVector> part;
    load_scores(part, p, row, end_of_keys(p, row), 0, at.thread);
    const float reference = finite_max(row_max(largest(part, -kInfinity), p.threads));
    const float sum = row_sum(weigh(part, reference, Exponential<Element>(p)), p.threads);
    if (p.lse.data != nullptr && at.thread == 0) *lse_of_row(p, row) = lse_of(reference, sum, p);
    const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
    part.each([&](int s, int i) { part.values[s][i] *= inverse; });
    part.store(row.of<Element>(p.to), p.len_k);
  }
}

template <int kVector>
__global__ void __launch_bounds__(kMostRowThreads, kWideBlocksAtOnce<kVector>)
    log_sum_exp(const __grid_constant__ RowPass p) {
#pragma unroll 1
  for (RowCursor at(p.threads); at.row < p.rows; at.advance(p.threads)) {
    const Row row(p, at.row);
    const int end = end_of_keys(p, row), chunks = Scores<kVector>::chunks(end, p.threads);
    Scores<kVector> part;
    float most = -kInfinity;
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      load_scores(part, p, row, end, chunk, at.thread);
      most = largest(part, most);
    }
    const float reference = finite_max(row_max(most, p.threads));
    float sum = 0.0f;
#pragma unroll 1
    for (int chunk = chunks - 1;;) {  // the last one is still there
      sum += weigh(part, reference, Exponential<float>(p));
      if (--chunk < 0) break;
      load_scores(part, p, row, end, chunk, at.thread);
    }
    sum = row_sum(sum, p.threads);
    if (at.thread != 0) continue;
    // Every weight of the row inherits the logarithm's error, hence what its rounding left out.
    const double logarithm = log(double{sum});
    const float rounded = sum == 0.0f ? -kInfinity : static_cast<float>(logarithm);
    p.statistics[row.index] = {reference, rounded,
                               sum == 0.0f ? 0.0f : static_cast<float>(logarithm - double{rounded})};
    if (p.lse.data != nullptr) *lse_of_row(p, row) = lse_of(reference, sum, p);
  }
}

template <class Element, int kVector>
__global__ void __launch_bounds__(kMostRowThreads, kBlocksAtOnce<kVector>)
    exponentials(const __grid_constant__ RowPass p) {
  RowCursor at(p.threads);
  const int chunks = HalfScores<kVector>::chunks(p.len_k, p.threads);
#pragma unroll 1
  for (; at.row < p.rows; at.advance(p.threads)) {
    const Row row(p, at.row);
    const LogSumExp of = p.statistics != nullptr ? p.statistics[row.index] : LogSumExp{0.0f, *lse_of_row(p, row), 0.0f};
    const int end = of.log_sum == -kInfinity ? 0 : end_of_keys(p, row);
    const float origin = of.origin * p.sign, hidden = -kInfinity * p.sign;
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      HalfScores<kVector> part;
      part.place(end, chunk, at.thread, p.threads);
      part.load(row.of<float>(p.scores), end, hidden);
      part.each([&](int s, int i) {
        float& v = part.values[s][i];
        const float weight = exponential_to_a_unit(fmaf(v - origin, p.factor, -of.log_sum));
        v = v == hidden ? 0.0f : fmaf(-of.left_out, weight, weight);
      });
      part.store(row.of<Element>(p.to), p.len_k);
    }
  }
}

template <class Weight, class Element, int kVector>
__global__ void __launch_bounds__(kMostRowThreads, kWideBlocksAtOnce<kVector>)
    differentiate(const __grid_constant__ RowPass p) {
  using Half = HalfScores<kVector>;
  RowCursor at(p.threads);
  const int chunks = Half::chunks(p.len_k, p.threads);
#pragma unroll 1
  for (; at.row < p.rows; at.advance(p.threads)) {
    const Row row(p, at.row);
    const int end = end_of_keys(p, row);
    Half gradients, weights;
    const auto load = [&](int chunk) {
      gradients.place(end, chunk, at.thread, p.threads);
      weights.place(end, chunk, at.thread, p.threads);
      gradients.load(row.of<float>(p.scores), end, 0.0f);
      weights.load(row.of<const Weight>(p.weights), end, 0.0f);
    };
    float2 sums = {0.0f, 0.0f};  // of weights * gradients, and of weights
#pragma unroll 1
    for (int chunk = p.delta != nullptr ? 0 : Half::chunks(end, p.threads) - 1; chunk >= 0; --chunk) {
      load(chunk);
      gradients.each([&](int s, int i) {
        sums = {fmaf(weights.values[s][i], gradients.values[s][i], sums.x), sums.y + weights.values[s][i]};
      });
    }
    float delta = 0.0f;
    if (p.delta != nullptr) {
      delta = p.delta[row.sequence * p.delta_head + row.query];
    } else {
      sums = row_sums(sums, p.threads);
      delta = sums.y > 0.0f ? sums.x / sums.y : 0.0f;
    }
#pragma unroll 1
    for (int chunk = 0;;) {
      gradients.each([&](int s, int i) {
        float& g = gradients.values[s][i];
        g = weights.values[s][i] * (g - delta) * p.factor;
      });
      gradients.store(row.of<Element>(p.to), p.len_k);
      if (++chunk == chunks) break;
      load(chunk);
    }
  }
}

template <class Element, int kVector>
__global__ void __launch_bounds__(kMostRowThreads, kBlocksAtOnce<kVector>) scale(const __grid_constant__ RowPass p) {
  RowCursor at(p.threads);
  const int chunks = Scores<kVector>::chunks(p.len_k, p.threads);
#pragma unroll 1
  for (; at.row < p.rows; at.advance(p.threads)) {
    const Row row(p, at.row);
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      Scores<kVector> part;
      part.place(p.len_k, chunk, at.thread, p.threads);
      part.load(row.of<float>(p.scores), p.len_k, 0.0f);
      part.each([&](int s, int i) { part.values[s][i] *= p.factor; });
      part.store(row.of<Element>(p.to), p.len_k);
    }
  }
}

__global__ void __launch_bounds__(kMostRowThreads) hide(const __grid_constant__ RowPass p) {
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
const void* kernel_of(Step step, bool widens) {
  switch (step) {
    case Step::scale:
      return reinterpret_cast<const void*>(&scale<Element, kVector>);
    case Step::hide:
      return reinterpret_cast<const void*>(&hide);
    case Step::softmax:
      return reinterpret_cast<const void*>(&softmax<Element, kVector>);
    case Step::log_sum_exp:
      return reinterpret_cast<const void*>(&log_sum_exp<kVector>);
    case Step::exponentials:
      return reinterpret_cast<const void*>(&exponentials<Element, kVector>);
    case Step::differentiate:
      return widens ? reinterpret_cast<const void*>(&differentiate<Element, float, kVector>)
                    : reinterpret_cast<const void*>(&differentiate<Element, Element, kVector>);
  }
  return nullptr;
}

template <class Element>
const void* kernel_of(Step step, bool widens, bool vector) {
  return vector ? kernel_of<Element, 4>(step, widens) : kernel_of<Element, 1>(step, widens);
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

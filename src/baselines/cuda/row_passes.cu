// Passes over rows of scores, bound by memory: what the registers of 512 threads hold of a row is read once, kept there
// and written once. Longer rows go in chunks; the softmax takes none of these, log_sum_exp and exponentials do its
// work. A thread reads and writes the same columns: results may stand in place.
#include "baselines/cuda/row.cuh"

namespace fovea::cuda::baselines {
namespace {

constexpr int kBlocksAtOnce = 2;

template <int kVector>
using Scores = Part<kVector, kRowValues / kVector>;
template <int kVector>
using HalfScores = Part<kVector, kRowValues / kVector / 2>;

// Relative to `reference`, the largest score of the row: a hidden one's -inf gives 0. The difference is taken before it
// is scaled: the largest weight is then exactly 1, however large the scores are.
__device__ __forceinline__ float weight(float score, float reference, const RowPass& p) {
  return expf((score - reference) * p.magnitude);
}

template <int kVector>
__device__ __forceinline__ void load_scores(Scores<kVector>& part, const RowPass& p, std::int64_t row, Keys keys,
                                            int chunk, int thread) {
  part.load(p.scores + row * p.len_k, keys, -kInfinity * p.sign, chunk, thread, p.threads);
  part.each([&](float& v) { v *= p.sign; });
}

// The largest of these scores and those before.
template <int kVector>
__device__ __forceinline__ float largest(Scores<kVector>& part, float before) {
  part.each([&](float v) { before = fmaxf(before, v); });
  return before;
}

// Scores become weights; returns their sum.
template <int kVector>
__device__ __forceinline__ float weigh(Scores<kVector>& part, float reference, const RowPass& p) {
  float sum = 0.0f;
  part.each([&](float& v) { sum += v = weight(v, reference, p); });
  return sum;
}

__device__ __forceinline__ float lse_of(float reference, float sum, const RowPass& p) {
  return sum == 0.0f ? -kInfinity : fmaf(reference, p.magnitude, logf(sum));
}

template <class Element, int kVector>
__global__ void __launch_bounds__(kMostRowThreads, kBlocksAtOnce) softmax(const __grid_constant__ RowPass p) {
#pragma unroll 1
  for (RowCursor at(p.threads); at.row < p.rows; at.advance(p.threads)) {
    Scores<kVector> part;
    load_scores(part, p, at.row, keys_of_row(p, at.row), 0, at.thread);
    const float reference = reference_of(row_max(largest(part, -kInfinity), p.threads));
    const float sum = row_sum(weigh(part, reference, p), p.threads), inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
    if (p.lse.data != nullptr && at.thread == 0) *lse_of_row(p, at.row) = lse_of(reference, sum, p);
    part.each([&](float& v) { v *= inverse; });
    part.store(static_cast<Element*>(p.to) + at.row * p.len_k, p.len_k, 0, at.thread, p.threads);
  }
}

template <int kVector>
__global__ void __launch_bounds__(kMostRowThreads, kBlocksAtOnce) log_sum_exp(const __grid_constant__ RowPass p) {
#pragma unroll 1
  for (RowCursor at(p.threads); at.row < p.rows; at.advance(p.threads)) {
    const Keys keys = keys_of_row(p, at.row);
    const int chunks = Scores<kVector>::chunks(keys.end, p.threads);
    Scores<kVector> part;
    float most = -kInfinity;
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      load_scores(part, p, at.row, keys, chunk, at.thread);
      most = largest(part, most);
    }
    const float reference = reference_of(row_max(most, p.threads));
    float sum = 0.0f;
#pragma unroll 1
    for (int chunk = chunks - 1;;) {  // the last one is still there
      sum += weigh(part, reference, p);
      if (--chunk < 0) break;
      load_scores(part, p, at.row, keys, chunk, at.thread);
    }
    sum = row_sum(sum, p.threads);
    if (at.thread != 0) continue;
    p.statistics[at.row] = {reference, sum == 0.0f ? -kInfinity : logf(sum)};
    if (p.lse.data != nullptr) *lse_of_row(p, at.row) = lse_of(reference, sum, p);
  }
}

template <class Element, int kVector>
__global__ void __launch_bounds__(kMostRowThreads, kBlocksAtOnce) exponentials(const __grid_constant__ RowPass p) {
  RowCursor at(p.threads);
  const int chunks = HalfScores<kVector>::chunks(p.len_k, p.threads);
#pragma unroll 1
  for (; at.row < p.rows; at.advance(p.threads)) {
    const LogSumExp of = p.statistics != nullptr ? p.statistics[at.row] : LogSumExp{0.0f, *lse_of_row(p, at.row)};
    const Keys keys = of.log_sum == -kInfinity ? Keys{0, 0} : keys_of_row(p, at.row);
    const float origin = of.origin * p.sign, hidden = -kInfinity * p.sign;
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      HalfScores<kVector> part;
      part.load(p.scores + at.row * p.len_k, keys, hidden, chunk, at.thread, p.threads);
      part.each([&](float& v) { v = v == hidden ? 0.0f : expf(fmaf(v - origin, p.factor, -of.log_sum)); });
      part.store(static_cast<Element*>(p.to) + at.row * p.len_k, p.len_k, chunk, at.thread, p.threads);
    }
  }
}

template <class Weight, class Element, int kVector>
__global__ void __launch_bounds__(kMostRowThreads, kBlocksAtOnce) differentiate(const __grid_constant__ RowPass p) {
  using Half = HalfScores<kVector>;
  RowCursor at(p.threads);
  const int chunks = Half::chunks(p.len_k, p.threads);
#pragma unroll 1
  for (; at.row < p.rows; at.advance(p.threads)) {
    const Keys keys = keys_of_row(p, at.row);
    Half gradients, weights;
    const auto load = [&](int chunk) {
      gradients.load(p.scores + at.row * p.len_k, keys, 0.0f, chunk, at.thread, p.threads);
      weights.load(static_cast<const Weight*>(p.weights) + at.row * p.len_k, keys, 0.0f, chunk, at.thread, p.threads);
    };
    float sum = 0.0f, total = 0.0f;
#pragma unroll 1
    for (int chunk = p.delta != nullptr ? 0 : Half::chunks(keys.end, p.threads) - 1; chunk >= 0; --chunk) {
      load(chunk);
#pragma unroll
      for (int i = 0; i < kRowValues / 2; ++i) {
        const float w = weights.values[i / kVector][i % kVector];
        sum = fmaf(w, gradients.values[i / kVector][i % kVector], sum);
        total += w;
      }
    }
    float delta = 0.0f;
    if (p.delta != nullptr) {
      delta = p.delta[at.row];
    } else {
      sum = row_sum(sum, p.threads), total = row_sum(total, p.threads);
      delta = total > 0.0f ? sum / total : 0.0f;
    }
#pragma unroll 1
    for (int chunk = 0;;) {
#pragma unroll
      for (int i = 0; i < kRowValues / 2; ++i) {
        float& g = gradients.values[i / kVector][i % kVector];
        g = weights.values[i / kVector][i % kVector] * (g - delta) * p.factor;
      }
      gradients.store(static_cast<Element*>(p.to) + at.row * p.len_k, p.len_k, chunk, at.thread, p.threads);
      if (++chunk == chunks) break;
      load(chunk);
    }
  }
}

template <class Element, int kVector>
__global__ void __launch_bounds__(kMostRowThreads, kBlocksAtOnce) scale(const __grid_constant__ RowPass p) {
  RowCursor at(p.threads);
  const int chunks = Scores<kVector>::chunks(p.len_k, p.threads);
#pragma unroll 1
  for (; at.row < p.rows; at.advance(p.threads)) {
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      Scores<kVector> part;
      part.load(p.scores + at.row * p.len_k, {0, p.len_k}, 0.0f, chunk, at.thread, p.threads);
      part.each([&](float& v) { v *= p.factor; });
      part.store(static_cast<Element*>(p.to) + at.row * p.len_k, p.len_k, chunk, at.thread, p.threads);
    }
  }
}

__global__ void __launch_bounds__(kMostRowThreads) hide(const __grid_constant__ RowPass p) {
#pragma unroll 1
  for (RowCursor at(p.threads); at.row < p.rows; at.advance(p.threads)) {
    const Keys keys = keys_of_row(p, at.row);
    float* const row = p.scores + at.row * p.len_k;
    for (int column = at.thread; column < keys.begin; column += p.threads) row[column] = -kInfinity;
#pragma unroll 4
    for (int column = max(0, keys.end) + at.thread; column < p.len_k; column += p.threads) row[column] = -kInfinity;
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

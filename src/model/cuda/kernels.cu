// Kernels between the products of a model. Neighbouring threads take neighbouring columns. Sums have an order that the
// sizes decide.
#include <cfloat>

#include "model/cuda/elements.cuh"
#include "model/cuda/kernels.h"

namespace fovea::model {
namespace {

constexpr int kWarps = kThreads / 32;

// visit(row, column) for the first of every kCount columns of a matrix.
template <int kCount, class Visit>
__device__ __forceinline__ void for_elements(std::int64_t rows, std::int64_t columns, Visit visit) {
  const std::int64_t tiles = (columns + kTileColumns - 1) / kTileColumns;
  for (std::int64_t tile = blockIdx.x; tile < rows * tiles; tile += gridDim.x) {
    const std::int64_t row = tile / tiles, first = (tile - row * tiles) * kTileColumns;
    const std::int64_t end = min(columns, first + kTileColumns);
    for (std::int64_t column = first + kCount * threadIdx.x; column < end; column += kCount * kThreads)
      visit(row, column);
  }
}

template <Element kElement, int kCount>
__global__ void __launch_bounds__(kThreads) swiglu(const __grid_constant__ cpu::SwigluTask t) {
  for_elements<kCount>(t.rows, t.columns, [&t](std::int64_t row, std::int64_t column) {
    const std::int64_t at = 2 * row * t.columns + column;
    float gate[kCount], up[kCount];
    load<kElement>(t.gate_up, at, gate);
    load<kElement>(t.gate_up, at + t.columns, up);
    for (int i = 0; i < kCount; ++i) up[i] *= gate[i] / (1.0f + expf(-gate[i]));
    store<kElement>(t.out, row * t.columns + column, up);
  });
}

// With s = sigmoid(gate): dgate = dout up s (1 + gate (1 - s)), dup = dout gate s.
template <Element kElement, int kCount>
__global__ void __launch_bounds__(kThreads) swiglu_backward(const __grid_constant__ cpu::SwigluBackwardTask t) {
  for_elements<kCount>(t.rows, t.columns, [&t](std::int64_t row, std::int64_t column) {
    const std::int64_t at = 2 * row * t.columns + column;
    float gate[kCount], up[kCount], dout[kCount];
    load<kElement>(t.gate_up, at, gate);
    load<kElement>(t.gate_up, at + t.columns, up);
    load<kElement>(t.dout, row * t.columns + column, dout);
    for (int i = 0; i < kCount; ++i) {
      const float s = 1.0f / (1.0f + expf(-gate[i])), dup = dout[i] * gate[i] * s;
      gate[i] = dout[i] * up[i] * s * (1.0f + gate[i] * (1.0f - s));
      up[i] = dup;
    }
    store<kElement>(t.dgate_up, at, gate);
    store<kElement>(t.dgate_up, at + t.columns, up);
  });
}

__global__ void __launch_bounds__(kThreads) gather(const __grid_constant__ cpu::GatherTask t) {
  for_elements<1>(t.count, t.columns, [&t](std::int64_t row, std::int64_t column) {
    t.rows[row * t.columns + column] = t.table[t.tokens[row] * t.columns + column];
  });
}

// Whether an earlier row has the same token; the same answer for all threads.
__device__ __forceinline__ bool is_repeated(const std::int32_t* tokens, std::int64_t row) {
  bool is_there = false;
#pragma unroll 1
  for (std::int64_t other = threadIdx.x; other < row; other += kThreads) is_there |= tokens[other] == tokens[row];
  return __syncthreads_or(is_there) != 0;
}

// The thread block of a token's first row adds all rows of this token, in their order. The others have nothing to do.
__global__ void __launch_bounds__(kThreads) scatter(const __grid_constant__ cpu::ScatterTask t) {
  __shared__ unsigned found[kWarps];
  const std::int64_t row = blockIdx.x;
  if (is_repeated(t.tokens, row)) return;
  const std::int32_t token = t.tokens[row];
  float* const to = t.dtable + token * t.stride + t.first_column;
#pragma unroll 1
  for (std::int64_t first = row; first < t.count; first += kThreads) {
    const std::int64_t own = first + threadIdx.x;
    const unsigned same = __ballot_sync(0xffffffffu, own < t.count && t.tokens[own] == token);
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = same;
    __syncthreads();
#pragma unroll 1
    for (int warp = 0; warp < kWarps; ++warp) {
#pragma unroll 1
      for (unsigned rest = found[warp]; rest != 0; rest &= rest - 1) {
        const float* const from =
            t.drows + (first + 32 * warp + __ffs(static_cast<int>(rest)) - 1) * t.stride + t.first_column;
#pragma unroll 1
        for (std::int64_t column = threadIdx.x; column < t.columns; column += kThreads) to[column] += from[column];
      }
    }
    __syncthreads();  // all threads have read `found`
  }
}

// The sum of exp(x - maximum) over some numbers, with one pass over them.
struct ExpSum {
  float maximum = -FLT_MAX, sum = 0.0f;
  __device__ void add(float x) {
    if (x > maximum) {
      sum = sum * expf(maximum - x) + 1.0f;
      maximum = x;
    } else {
      sum += expf(x - maximum);
    }
  }
  __device__ void add(const ExpSum& other) {
    const float larger = fmaxf(maximum, other.maximum);
    sum = sum * expf(maximum - larger) + other.sum * expf(other.maximum - larger);
    maximum = larger;
  }
};

// Of all numbers of a thread block; every thread gets the same bits.
__device__ __forceinline__ ExpSum sum_of_block(ExpSum sum) {
  __shared__ ExpSum sums[kWarps];
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    sum.add({__shfl_xor_sync(0xffffffffu, sum.maximum, step), __shfl_xor_sync(0xffffffffu, sum.sum, step)});
  __syncthreads();  // all threads have read the sums of the row before
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  ExpSum all = sums[0];
  for (int warp = 1; warp < kWarps; ++warp) all.add(sums[warp]);
  return all;
}

// Replaces a row of logits by its gradient. As bf16 it fills the first half of the row: the thread block has read every
// logit that it overwrites before it writes.
__device__ __forceinline__ void write_gradient(const cpu::CrossEntropyTask& t, float* logits, std::int32_t target,
                                               const ExpSum& all) {
  constexpr int kEach = 4;
  const float factor = t.gradient / all.sum;
  for (std::int64_t first = 0; first < t.columns; first += kEach * kThreads) {
    float values[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const std::int64_t column = first + i * kThreads + threadIdx.x;
      if (column >= t.columns) continue;
      values[i] = factor * expf(logits[column] - all.maximum) - (column == target ? t.gradient : 0.0f);
    }
    if (t.element != Element::fp32) __syncthreads();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const std::int64_t column = first + i * kThreads + threadIdx.x;
      if (column < t.columns) cuda::store_element(logits, static_cast<cuda::ElementKind>(t.element), column, values[i]);
    }
  }
}

__global__ void __launch_bounds__(kThreads) cross_entropy(const __grid_constant__ cpu::CrossEntropyTask t) {
  for (std::int64_t row = blockIdx.x; row < t.rows; row += gridDim.x) {
    float* const logits = t.logits + row * t.columns;
    const std::int32_t target = t.targets[row];
    const float logit = logits[target];  // before any thread writes its gradient
    ExpSum mine;
    for (std::int64_t column = threadIdx.x; column < t.columns; column += kThreads) mine.add(logits[column]);
    const ExpSum all = sum_of_block(mine);
    if (threadIdx.x == 0) t.losses[row] = {all.maximum, all.sum, logit};
    if (t.gradient != 0.0f) write_gradient(t, logits, target, all);
  }
}

// Four neighbouring numbers a thread, but the last ones.
__global__ void __launch_bounds__(kThreads) round_to_bf16(const __grid_constant__ RoundParameters p) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads * 4;
  for (std::int64_t i = 4 * (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x); i < p.count; i += step) {
    if (i + 4 <= p.count) {
      float four[4];
      load<Element::fp32>(p.from, i, four);
      store<Element::bf16>(p.to, i, four);
      continue;
    }
    for (std::int64_t rest = i; rest < p.count; ++rest)
      cuda::store_element(p.to, cuda::ElementKind::bf16, rest, p.from[rest]);
  }
}

// The sum over a thread block, in the first thread.
template <class Number>
__device__ __forceinline__ Number sum_of_threads(Number value) {
  __shared__ Number sums[kWarps];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  for (int warp = 1; threadIdx.x == 0 && warp < kWarps; ++warp) value += sums[warp];
  return value;
}

__global__ void __launch_bounds__(kThreads) square_sums(const __grid_constant__ SquareSumParameters p) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kSquares, end = min(p.count, first + kSquares);
  float sum = 0.0f;
  for (std::int64_t i = first + threadIdx.x; i < end; i += kThreads) sum = fmaf(p.values[i], p.values[i], sum);
  sum = sum_of_threads(sum);
  if (threadIdx.x == 0) p.sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) clip(const __grid_constant__ ClipParameters p) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < p.count; i += kThreads) sum += static_cast<double>(p.sums[i]);
  const double norm = sqrt(sum_of_threads(sum));
  if (threadIdx.x == 0) *p.clipping = {norm, norm > p.largest_norm ? p.largest_norm / norm : 1.0};
}

__global__ void __launch_bounds__(kThreads) adamw(const __grid_constant__ AdamWParameters p) {
  if (!isfinite(p.clipping->norm)) return;
  const auto factor = static_cast<float>(p.clipping->factor);
  const cpu::AdamWTask& t = p.task;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < t.count; i += step) {
    const float g = t.gradient[i] * factor;
    const float m = fmaf(t.rest1, g - t.m[i], t.m[i]), v = fmaf(t.rest2 * g, g, t.beta2 * t.v[i]);
    t.m[i] = m;
    t.v[i] = v;
    const float weight = t.weight[i] * t.decay - t.step_size * (m / fmaf(sqrtf(v), t.v_factor, t.epsilon));
    t.weight[i] = weight;
    if (t.rounded != nullptr) cuda::store_element(t.rounded, cuda::ElementKind::bf16, i, weight);
  }
}

template <Element kElement>
const void* swiglu_of(int count) {
  return count == 4 ? reinterpret_cast<const void*>(&swiglu<kElement, 4>)
                    : reinterpret_cast<const void*>(&swiglu<kElement, 1>);
}
template <Element kElement>
const void* swiglu_backward_of(int count) {
  return count == 4 ? reinterpret_cast<const void*>(&swiglu_backward<kElement, 4>)
                    : reinterpret_cast<const void*>(&swiglu_backward<kElement, 1>);
}

}  // namespace

const void* swiglu_kernel(Element element, int count) {
  return element == Element::fp32 ? swiglu_of<Element::fp32>(count) : swiglu_of<Element::bf16>(count);
}
const void* swiglu_backward_kernel(Element element, int count) {
  return element == Element::fp32 ? swiglu_backward_of<Element::fp32>(count)
                                  : swiglu_backward_of<Element::bf16>(count);
}
const void* gather_kernel() { return reinterpret_cast<const void*>(&gather); }
const void* scatter_kernel() { return reinterpret_cast<const void*>(&scatter); }
const void* cross_entropy_kernel() { return reinterpret_cast<const void*>(&cross_entropy); }
const void* round_kernel() { return reinterpret_cast<const void*>(&round_to_bf16); }
const void* square_sums_kernel() { return reinterpret_cast<const void*>(&square_sums); }
const void* clip_kernel() { return reinterpret_cast<const void*>(&clip); }
const void* adamw_kernel() { return reinterpret_cast<const void*>(&adamw); }

}  // namespace fovea::model

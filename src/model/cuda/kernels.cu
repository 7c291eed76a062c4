// Kernels between the products of a model. Neighbouring threads take neighbouring columns. Sums have an order that the
// sizes decide.
#include <cfloat>

#include "cuda/ptx/grid_dependency.cuh"
#include "model/cuda/elements.cuh"
#include "model/cuda/kernels.h"

namespace fovea::model {
namespace {

constexpr int kWarps = kThreads / 32;

// visit(row, column) for the first of every kCount columns of a matrix.
template <int kCount, class Visit>
__device__ __forceinline__ void for_elements(std::int64_t rows, std::int64_t columns, Visit visit) {
  const std::int64_t tile_columns = kCount * static_cast<std::int64_t>(blockDim.x);
  const std::int64_t tiles = (columns + tile_columns - 1) / tile_columns;
  cuda::ptx::griddepcontrol_wait();
  for (std::int64_t tile = blockIdx.x; tile < rows * tiles; tile += gridDim.x) {
    const std::int64_t row = tile / tiles, column = (tile - row * tiles) * tile_columns + kCount * threadIdx.x;
    if (column < columns) visit(row, column);
  }
}

// 1 / (1 + exp(-x)). For results in bf16, with the fast exponential and division: their errors, of some 2^-21, vanish
// in the rounding.
template <Element kElement>
__device__ __forceinline__ float sigmoid(float x) {
  if constexpr (kElement == Element::fp32) return 1.0f / (1.0f + expf(-x));
  return __fdividef(1.0f, 1.0f + __expf(fminf(-x, 87.0f)));  // __fdividef is 0 from 2^126 on, and wrong above
}

template <Element kElement, int kCount>
__global__ void __launch_bounds__(kTileThreads) swiglu(const __grid_constant__ cpu::SwigluTask t) {
  for_elements<kCount>(t.rows, t.columns, [&t](std::int64_t row, std::int64_t column) {
    const std::int64_t at = 2 * row * t.columns + column;
    float gate[kCount], up[kCount];
    load<kElement>(t.gate_up, at, gate);
    load<kElement>(t.gate_up, at + t.columns, up);
    for (int i = 0; i < kCount; ++i) up[i] *= gate[i] * sigmoid<kElement>(gate[i]);
    store<kElement>(t.out, row * t.columns + column, up);
  });
}

// With s = sigmoid(gate): dgate = dout up s (1 + gate (1 - s)), dup = dout gate s. `out` has the bits of swiglu.
template <Element kElement, int kCount>
__global__ void __launch_bounds__(kTileThreads) swiglu_backward(const __grid_constant__ cpu::SwigluBackwardTask t) {
  for_elements<kCount>(t.rows, t.columns, [&t](std::int64_t row, std::int64_t column) {
    const std::int64_t at = 2 * row * t.columns + column;
    float gate[kCount], up[kCount], dout[kCount];
    load<kElement>(t.gate_up, at, gate);
    load<kElement>(t.gate_up, at + t.columns, up);
    load<kElement>(t.dout, row * t.columns + column, dout);
    float out[kCount];
    for (int i = 0; i < kCount; ++i) {
      const float s = sigmoid<kElement>(gate[i]), dup = dout[i] * gate[i] * s;
      out[i] = up[i] * (gate[i] * s);
      gate[i] = dout[i] * up[i] * s * (1.0f + gate[i] * (1.0f - s));
      up[i] = dup;
    }
    store<kElement>(t.dgate_up, at, gate);
    store<kElement>(t.dgate_up, at + t.columns, up);
    if (t.out != nullptr) store<kElement>(t.out, row * t.columns + column, out);
  });
}

template <int kCount>
__global__ void __launch_bounds__(kTileThreads) gather(const __grid_constant__ cpu::GatherTask t) {
  for_elements<kCount>(t.count, t.columns, [&t](std::int64_t row, std::int64_t column) {
    float values[kCount];
    load<Element::fp32>(t.table, t.tokens[row] * t.columns + column, values);
    store<Element::fp32>(t.rows, row * t.columns + column, values);
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

// exp(x - maximum), as the power of 2 that the hardware computes.
__device__ __forceinline__ float exp_below(float x, float maximum) {
  constexpr float kLog2E = 1.44269504f;
  return exp2f((x - maximum) * kLog2E);
}

// The sum of exp(x - maximum) over some numbers, with one pass over them.
struct ExpSum {
  float maximum = -FLT_MAX, sum = 0.0f;
  template <int kCount>
  __device__ void add(const float (&x)[kCount]) {
    float larger = maximum;
    for (int i = 0; i < kCount; ++i) larger = fmaxf(larger, x[i]);
    sum *= exp_below(maximum, larger);
    for (int i = 0; i < kCount; ++i) sum += exp_below(x[i], larger);
    maximum = larger;
  }
  __device__ void merge(const ExpSum& other) {
    const float larger = fmaxf(maximum, other.maximum);
    sum = sum * exp_below(maximum, larger) + other.sum * exp_below(other.maximum, larger);
    maximum = larger;
  }
};

// Of all numbers of a thread block; every thread gets the same bits.
__device__ __forceinline__ ExpSum sum_of_block(ExpSum sum) {
  __shared__ ExpSum sums[kLossThreads / 32];
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    sum.merge({__shfl_xor_sync(0xffffffffu, sum.maximum, step), __shfl_xor_sync(0xffffffffu, sum.sum, step)});
  __syncthreads();  // all threads have read the sums of the row before
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  ExpSum all = sums[0];
  for (int warp = 1; warp < kLossThreads / 32; ++warp) all.merge(sums[warp]);
  return all;
}

// Several vectors of a row that a thread reads at once. visit(columns, i) for those that the row has.
constexpr int kEach = 2;
template <int kCount, class Visit>
__device__ __forceinline__ void for_vectors(std::int64_t first, std::int64_t columns, Visit visit) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const std::int64_t column = first + kCount * (i * kLossThreads + static_cast<int>(threadIdx.x));
    if (column < columns) visit(column, i);
  }
}

// Replaces a row of logits by its gradient. As bf16 it fills the first half of the row: the thread block has read every
// logit that it overwrites before it writes.
template <int kCount>
__device__ __forceinline__ void write_gradient(const cpu::CrossEntropyTask& t, float* logits, std::int32_t target,
                                               const ExpSum& all) {
  const float factor = t.gradient / all.sum;
  for (std::int64_t first = 0; first < t.columns; first += kEach * kCount * kLossThreads) {
    float values[kEach][kCount];
    for_vectors<kCount>(first, t.columns,
                        [&](std::int64_t column, int i) { load<Element::fp32>(logits, column, values[i]); });
    for_vectors<kCount>(first, t.columns, [&](std::int64_t column, int i) {
      for (int j = 0; j < kCount; ++j)
        values[i][j] = factor * exp_below(values[i][j], all.maximum) - (column + j == target ? t.gradient : 0.0f);
    });
    if (t.element != Element::fp32) __syncthreads();
    for_vectors<kCount>(first, t.columns, [&](std::int64_t column, int i) {
      if (t.element == Element::fp32)
        store<Element::fp32>(logits, column, values[i]);
      else
        store<Element::bf16>(logits, column, values[i]);
    });
  }
}

template <int kCount>
__global__ void __launch_bounds__(kLossThreads) cross_entropy(const __grid_constant__ cpu::CrossEntropyTask t) {
  cuda::ptx::griddepcontrol_wait();
  for (std::int64_t row = blockIdx.x; row < t.rows; row += gridDim.x) {
    float* const logits = t.logits + row * t.columns;
    const std::int32_t target = t.targets[row];
    const float logit = logits[target];  // before any thread writes its gradient
    ExpSum mine;
    for (std::int64_t first = 0; first < t.columns; first += kEach * kCount * kLossThreads) {
      float values[kEach][kCount];
      for_vectors<kCount>(first, t.columns,
                          [&](std::int64_t column, int i) { load<Element::fp32>(logits, column, values[i]); });
      for_vectors<kCount>(first, t.columns, [&](std::int64_t, int i) { mine.add(values[i]); });
    }
    const ExpSum all = sum_of_block(mine);
    if (threadIdx.x == 0) t.losses[row] = {all.maximum, all.sum, logit};
    if (t.gradient != 0.0f) write_gradient<kCount>(t, logits, target, all);
  }
}

// Rows that the thread block holds in registers: it reads each logit once, and all of them before it writes a gradient.
__global__ void __launch_bounds__(kLossThreads) cross_entropy_held(const __grid_constant__ cpu::CrossEntropyTask t) {
  const auto for_held = [&t](auto visit) {
#pragma unroll
    for (int i = 0; i < kHeldLogits / 4; ++i) {
      const std::int64_t column = 4 * (i * kLossThreads + static_cast<int>(threadIdx.x));
      if (column < t.columns) visit(column, i);
    }
  };
  cuda::ptx::griddepcontrol_wait();
  for (std::int64_t row = blockIdx.x; row < t.rows; row += gridDim.x) {
    float* const logits = t.logits + row * t.columns;
    const std::int32_t target = t.targets[row];
    const float logit = logits[target];
    float x[kHeldLogits / 4][4];
    ExpSum mine;
    for_held([&](std::int64_t column, int i) { load<Element::fp32>(logits, column, x[i]); });
    for_held([&](std::int64_t, int i) {
      for (int j = 0; j < 4; ++j) mine.maximum = fmaxf(mine.maximum, x[i][j]);
    });
    for_held([&](std::int64_t, int i) {
      for (int j = 0; j < 4; ++j) x[i][j] = exp_below(x[i][j], mine.maximum), mine.sum += x[i][j];
    });
    const ExpSum all = sum_of_block(mine);
    if (threadIdx.x == 0) t.losses[row] = {all.maximum, all.sum, logit};
    if (t.gradient == 0.0f) continue;
    const float factor = t.gradient / all.sum * exp_below(mine.maximum, all.maximum);
    for_held([&](std::int64_t column, int i) {
      for (int j = 0; j < 4; ++j) x[i][j] = factor * x[i][j] - (column + j == target ? t.gradient : 0.0f);
      if (t.element == Element::fp32)
        store<Element::fp32>(logits, column, x[i]);
      else
        store<Element::bf16>(logits, column, x[i]);
    });
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
const void* swiglu_of(bool wide) {
  return wide ? reinterpret_cast<const void*>(&swiglu<kElement, wide_columns(kElement)>)
              : reinterpret_cast<const void*>(&swiglu<kElement, 1>);
}
template <Element kElement>
const void* swiglu_backward_of(bool wide) {
  return wide ? reinterpret_cast<const void*>(&swiglu_backward<kElement, wide_columns(kElement)>)
              : reinterpret_cast<const void*>(&swiglu_backward<kElement, 1>);
}

}  // namespace

const void* swiglu_kernel(Element element, bool wide) {
  return element == Element::fp32 ? swiglu_of<Element::fp32>(wide) : swiglu_of<Element::bf16>(wide);
}
const void* swiglu_backward_kernel(Element element, bool wide) {
  return element == Element::fp32 ? swiglu_backward_of<Element::fp32>(wide) : swiglu_backward_of<Element::bf16>(wide);
}
const void* gather_kernel(bool wide) {
  return wide ? reinterpret_cast<const void*>(&gather<4>) : reinterpret_cast<const void*>(&gather<1>);
}
const void* scatter_kernel() { return reinterpret_cast<const void*>(&scatter); }
const void* cross_entropy_kernel(bool wide, std::int64_t columns) {
  if (wide && columns <= kHeldLogits * kLossThreads) return reinterpret_cast<const void*>(&cross_entropy_held);
  return wide ? reinterpret_cast<const void*>(&cross_entropy<4>) : reinterpret_cast<const void*>(&cross_entropy<1>);
}
const void* round_kernel() { return reinterpret_cast<const void*>(&round_to_bf16); }
const void* square_sums_kernel() { return reinterpret_cast<const void*>(&square_sums); }
const void* clip_kernel() { return reinterpret_cast<const void*>(&clip); }
const void* adamw_kernel() { return reinterpret_cast<const void*>(&adamw); }

}  // namespace fovea::model

// RMSNorm of the rows of a matrix, and its gradients. A thread block takes one row after another, and a thread the same
// columns in every row. It reads a row twice: the second time from the L1 cache.
#include "model/cuda/elements.cuh"
#include "model/cuda/kernels.h"

namespace fovea::model {
namespace {

// The sums over a thread block of whole warps; every thread gets the same bits.
__device__ __forceinline__ float2 sum_of_block(float2 sum) {
  __shared__ float2 sums[kThreads / 32];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    sum.x += __shfl_xor_sync(0xffffffffu, sum.x, step);
    sum.y += __shfl_xor_sync(0xffffffffu, sum.y, step);
  }
  __syncthreads();  // all threads have read the sums of the row before
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  float2 all = sums[0];
  for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) all.x += sums[warp].x, all.y += sums[warp].y;
  return all;
}

// visit(column) for the first of each kCount columns of this thread.
template <int kCount, class Visit>
__device__ __forceinline__ void for_columns(std::int64_t columns, Visit visit) {
  for (std::int64_t column = kCount * threadIdx.x; column < columns; column += kCount * blockDim.x) visit(column);
}

template <Element kElement, int kCount>
__global__ void __launch_bounds__(kThreads) rms_norm(const __grid_constant__ cpu::RmsNormTask t) {
  for (std::int64_t row = blockIdx.x; row < t.rows; row += gridDim.x) {
    const std::int64_t first = row * t.columns;
    float squares = 0.0f;
    for_columns<kCount>(t.columns, [&](std::int64_t column) {
      float x[kCount];
      load<Element::fp32>(t.x, first + column, x);
      if (t.branch != nullptr) {
        float branch[kCount];
        load<kElement>(t.branch, first + column, branch);
        for (int i = 0; i < kCount; ++i) x[i] += branch[i];
        store<Element::fp32>(t.sum, first + column, x);
      }
      for (int i = 0; i < kCount; ++i) squares = fmaf(x[i], x[i], squares);
    });
    const float mean = sum_of_block({squares, 0.0f}).x / static_cast<float>(t.columns);
    const float inverse = 1.0f / sqrtf(mean + t.epsilon);
    for_columns<kCount>(t.columns, [&](std::int64_t column) {
      float x[kCount], weight[kCount];
      load<Element::fp32>(t.branch != nullptr ? t.sum : t.x, first + column, x);
      load<Element::fp32>(t.weight, column, weight);
      for (int i = 0; i < kCount; ++i) x[i] *= inverse * weight[i];
      store<kElement>(t.y, first + column, x);
    });
  }
}

// With n = x * inverse and g = dy * weight: dx = inverse * (g - n * mean(g * n)), dweight += dy * n.
template <Element kElement, int kCount>
__global__ void __launch_bounds__(kThreads) rms_norm_backward(const __grid_constant__ NormBackwardParameters p) {
  const cpu::RmsNormBackwardTask& t = p.task;
  float* const partial = p.partials + blockIdx.x * t.columns;
  for (std::int64_t row = blockIdx.x; row < t.rows; row += gridDim.x) {
    const std::int64_t first = row * t.columns;
    float2 sums = {0.0f, 0.0f};  // of x^2, of g * x
    for_columns<kCount>(t.columns, [&](std::int64_t column) {
      float x[kCount], dy[kCount], weight[kCount];
      load<Element::fp32>(t.x, first + column, x);
      load<kElement>(t.dy, first + column, dy);
      load<Element::fp32>(t.weight, column, weight);
      for (int i = 0; i < kCount; ++i) {
        sums.x = fmaf(x[i], x[i], sums.x);
        sums.y = fmaf(dy[i] * weight[i], x[i], sums.y);
      }
    });
    sums = sum_of_block(sums);
    const auto columns = static_cast<float>(t.columns);
    const float inverse = 1.0f / sqrtf(sums.x / columns + t.epsilon), mean = inverse * sums.y / columns;
    for_columns<kCount>(t.columns, [&](std::int64_t column) {
      float x[kCount], dy[kCount], weight[kCount], dx[kCount] = {}, dweight[kCount] = {};
      load<Element::fp32>(t.x, first + column, x);
      load<kElement>(t.dy, first + column, dy);
      load<Element::fp32>(t.weight, column, weight);
      if (t.accumulate) load<Element::fp32>(t.dx, first + column, dx);
      if (row != blockIdx.x) load<Element::fp32>(partial, column, dweight);
      for (int i = 0; i < kCount; ++i) {
        const float n = x[i] * inverse;
        dx[i] += inverse * (dy[i] * weight[i] - n * mean);
        dweight[i] += dy[i] * n;
      }
      store<Element::fp32>(partial, column, dweight);
      store<Element::fp32>(t.dx, first + column, dx);
      if (t.rounded != nullptr) store<Element::bf16>(t.rounded, first + column, dx);
    });
  }
}

template <Element kElement>
const void* rms_norm_of(int count) {
  return count == 4 ? reinterpret_cast<const void*>(&rms_norm<kElement, 4>)
                    : reinterpret_cast<const void*>(&rms_norm<kElement, 1>);
}
template <Element kElement>
const void* rms_norm_backward_of(int count) {
  return count == 4 ? reinterpret_cast<const void*>(&rms_norm_backward<kElement, 4>)
                    : reinterpret_cast<const void*>(&rms_norm_backward<kElement, 1>);
}

}  // namespace

const void* rms_norm_kernel(Element element, int count) {
  return element == Element::fp32 ? rms_norm_of<Element::fp32>(count) : rms_norm_of<Element::bf16>(count);
}
const void* rms_norm_backward_kernel(Element element, int count) {
  return element == Element::fp32 ? rms_norm_backward_of<Element::fp32>(count)
                                  : rms_norm_backward_of<Element::bf16>(count);
}

}  // namespace fovea::model

// One warp per row. Every element checks its type at run time, because these tensors are small compared to the scores.
#include "baselines/cuda/tensor_passes.h"
#include "cuda/device/element.cuh"

namespace fovea::cuda::baselines {
namespace {

template <class Pointer>
__device__ __forceinline__ float load(const BasicTensorRef<Pointer>& t, std::int64_t index) {
  return load_element(t.data, t.kind, index);
}

__device__ __forceinline__ void store(const TensorRef& t, std::int64_t index, float value) {
  store_element(t.data, t.kind, index, value);
}

template <class Pointer, class Pass>
__device__ __forceinline__ std::int64_t offset(const BasicTensorRef<Pointer>& t, std::int64_t row, const Pass& p) {
  const std::int64_t sequence = row / p.len, batch = sequence / p.heads;
  return batch * t.batch_stride + (sequence - batch * p.heads) * t.head_stride +
         (row - sequence * p.len) * t.row_stride;
}

__device__ __forceinline__ std::int64_t first_row() {
  return (static_cast<std::int64_t>(blockIdx.x) * kTensorPassThreads + threadIdx.x) / 32;
}
__device__ __forceinline__ std::int64_t row_step() {
  return static_cast<std::int64_t>(gridDim.x) * (kTensorPassThreads / 32);
}

__global__ void __launch_bounds__(kTensorPassThreads) copy_rows(const __grid_constant__ TensorCopy p) {
  for (std::int64_t row = first_row(); row < p.rows; row += row_step()) {
    const std::int64_t from = p.from.data == nullptr ? 0 : offset(p.from, row, p), to = offset(p.to, row, p);
    for (int column = static_cast<int>(threadIdx.x) % 32; column < p.dim; column += 32) {
      float value = p.from.data == nullptr ? p.value : load(p.from, from + column);
      if (p.accumulate) value += load(p.to, to + column);
      store(p.to, to + column, value);
    }
  }
}

__global__ void __launch_bounds__(kTensorPassThreads) row_delta(const __grid_constant__ DeltaPass p) {
  for (std::int64_t row = first_row(); row < p.rows; row += row_step()) {
    const std::int64_t out = offset(p.out, row, p), dout = offset(p.dout, row, p);
    float sum = 0.0f;
    for (int column = static_cast<int>(threadIdx.x) % 32; column < p.dim; column += 32)
      sum = fmaf(load(p.out, out + column), load(p.dout, dout + column), sum);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0) p.delta[row] = sum;
  }
}

}  // namespace

const void* tensor_copy_kernel() { return reinterpret_cast<const void*>(&copy_rows); }
const void* delta_kernel() { return reinterpret_cast<const void*>(&row_delta); }

}  // namespace fovea::cuda::baselines

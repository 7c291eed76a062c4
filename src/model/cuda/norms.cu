// RMSNorm of the rows of a matrix, and its gradients. Neighbouring warps share a row and keep it in registers. Rows
// that are too wide for that, or not aligned, take a thread block each, which reads them twice.
#include "cuda/ptx/grid_dependency.cuh"
#include "model/cuda/elements.cuh"
#include "model/cuda/kernels.h"

namespace fovea::model {
namespace {

__device__ __forceinline__ float2 sum_of_warp(float2 sum) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    sum.x += __shfl_xor_sync(0xffffffffu, sum.x, step);
    sum.y += __shfl_xor_sync(0xffffffffu, sum.y, step);
  }
  return sum;
}

// The sums over `warps` neighbouring warps of a thread block; all of their threads get the same bits.
__device__ __forceinline__ float2 sum_of_row(float2 sum, unsigned warps) {
  __shared__ float2 sums[kThreads / 32];
  sum = sum_of_warp(sum);
  if (warps == 1) return sum;
  const unsigned warp = threadIdx.x / 32;
  __syncthreads();  // all threads have read the sums of the row before
  if (threadIdx.x % 32 == 0) sums[warp] = sum;
  __syncthreads();
  const unsigned first = warp / warps * warps;
  float2 all = sums[first];
  for (unsigned other = 1; other < warps; ++other) all.x += sums[first + other].x, all.y += sums[first + other].y;
  return all;
}

// The rows and columns of a thread: four columns at a time, whole warps side by side.
struct HeldRow {
  unsigned row_warps;
  std::int64_t first_column, columns;

  __device__ HeldRow(unsigned warps, std::int64_t all)
      : row_warps(warps), first_column(4 * (threadIdx.x % (32 * warps))), columns(all) {}

  __device__ unsigned rows_at_once() const { return blockDim.x / 32 / row_warps; }
  __device__ unsigned row_of_block() const { return threadIdx.x / 32 / row_warps; }
  // visit(index, column) for each of the four columns; `index` counts them.
  template <class Visit>
  __device__ __forceinline__ void for_columns(Visit visit) const {
#pragma unroll
    for (int i = 0; i < kHeldVectors; ++i) {
      const std::int64_t column = first_column + 128 * i * row_warps;
      if (column < columns) visit(i, column);
    }
  }
};

template <Element kElement>
__global__ void __launch_bounds__(kThreads) rms_norm_held(const __grid_constant__ NormParameters p) {
  const cpu::RmsNormTask& t = p.task;
  const HeldRow held(p.row_warps, t.columns);
  cuda::ptx::griddepcontrol_wait();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * held.rows_at_once();
  for (std::int64_t first_row = blockIdx.x * held.rows_at_once(); first_row < t.rows; first_row += step) {
    const std::int64_t row = first_row + held.row_of_block(), first = row * t.columns;
    const bool is_there = row < t.rows;
    float x[kHeldVectors][4] = {};
    float squares = 0.0f;
    if (is_there) {
      held.for_columns([&](int i, std::int64_t column) { load<Element::fp32>(t.x, first + column, x[i]); });
      if (t.branch != nullptr) {
        float branch[kHeldVectors][4] = {};
        held.for_columns([&](int i, std::int64_t column) { load<kElement>(t.branch, first + column, branch[i]); });
        held.for_columns([&](int i, std::int64_t column) {
          for (int j = 0; j < 4; ++j) x[i][j] += branch[i][j];
          store<Element::fp32>(t.sum, first + column, x[i]);
        });
      }
#pragma unroll
      for (int i = 0; i < kHeldVectors; ++i)
        for (int j = 0; j < 4; ++j) squares = fmaf(x[i][j], x[i][j], squares);
    }
    const float mean = sum_of_row({squares, 0.0f}, p.row_warps).x / static_cast<float>(t.columns);
    if (!is_there) continue;
    const float inverse = 1.0f / sqrtf(mean + t.epsilon);
    held.for_columns([&](int i, std::int64_t column) {
      float weight[4];
      load<Element::fp32>(t.weight, column, weight);
      for (int j = 0; j < 4; ++j) x[i][j] *= inverse * weight[j];
      store<kElement>(t.y, first + column, x[i]);
    });
  }
}

// With n = x * inverse and g = dy * weight: dx = inverse * (g - n * mean(g * n)), dweight += dy * n.
template <Element kElement>
__global__ void __launch_bounds__(kThreads) rms_norm_backward_held(const __grid_constant__ NormBackwardParameters p) {
  extern __shared__ float dweights[];  // [columns]
  const cpu::RmsNormBackwardTask& t = p.task;
  const HeldRow held(p.row_warps, t.columns);
  float dweight[kHeldVectors][4] = {};
  cuda::ptx::griddepcontrol_wait();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * held.rows_at_once();
  for (std::int64_t first_row = blockIdx.x * held.rows_at_once(); first_row < t.rows; first_row += step) {
    const std::int64_t row = first_row + held.row_of_block(), first = row * t.columns;
    const bool is_there = row < t.rows;
    float x[kHeldVectors][4] = {}, dy[kHeldVectors][4] = {};
    float2 sums = {0.0f, 0.0f};  // of x^2, of g * x
    if (is_there) {
      held.for_columns([&](int i, std::int64_t column) {
        load<Element::fp32>(t.x, first + column, x[i]);
        load<kElement>(t.dy, first + column, dy[i]);
      });
      held.for_columns([&](int i, std::int64_t column) {
        float weight[4];
        load<Element::fp32>(t.weight, column, weight);
        for (int j = 0; j < 4; ++j) {
          sums.x = fmaf(x[i][j], x[i][j], sums.x);
          sums.y = fmaf(dy[i][j] * weight[j], x[i][j], sums.y);
        }
      });
    }
    sums = sum_of_row(sums, p.row_warps);
    if (!is_there) continue;
    const auto columns = static_cast<float>(t.columns);
    const float inverse = 1.0f / sqrtf(sums.x / columns + t.epsilon), mean = inverse * sums.y / columns;
    held.for_columns([&](int i, std::int64_t column) {
      float weight[4], dx[4] = {};
      load<Element::fp32>(t.weight, column, weight);
      if (t.accumulate) load<Element::fp32>(t.dx, first + column, dx);
      for (int j = 0; j < 4; ++j) {
        const float n = x[i][j] * inverse;
        dx[j] += inverse * (dy[i][j] * weight[j] - n * mean);
        dweight[i][j] += dy[i][j] * n;
      }
      store<Element::fp32>(t.dx, first + column, dx);
      if (t.rounded != nullptr) store<Element::bf16>(t.rounded, first + column, dx);
    });
  }
  // Rows that the thread block had side by side are added in order.
  for (unsigned turn = 0; turn < held.rows_at_once(); ++turn) {
    if (turn == held.row_of_block())
      held.for_columns([&](int i, std::int64_t column) {
        for (int j = 0; j < 4; ++j) {
          const float sum = turn == 0 ? dweight[i][j] : dweights[column + j] + dweight[i][j];
          if (turn + 1 == held.rows_at_once())
            p.partials[blockIdx.x * t.columns + column + j] = sum;
          else
            dweights[column + j] = sum;
        }
      });
    __syncthreads();
  }
}

// visit(column) for each column of this thread.
template <class Visit>
__device__ __forceinline__ void for_columns(std::int64_t columns, Visit visit) {
  for (std::int64_t column = threadIdx.x; column < columns; column += blockDim.x) visit(column);
}

template <Element kElement>
__global__ void __launch_bounds__(kThreads) rms_norm(const __grid_constant__ NormParameters p) {
  const cpu::RmsNormTask& t = p.task;
  for (std::int64_t row = blockIdx.x; row < t.rows; row += gridDim.x) {
    const std::int64_t first = row * t.columns;
    float squares = 0.0f;
    for_columns(t.columns, [&](std::int64_t column) {
      float x[1];
      load<Element::fp32>(t.x, first + column, x);
      if (t.branch != nullptr) {
        float branch[1];
        load<kElement>(t.branch, first + column, branch);
        x[0] += branch[0];
        store<Element::fp32>(t.sum, first + column, x);
      }
      squares = fmaf(x[0], x[0], squares);
    });
    const float mean = sum_of_row({squares, 0.0f}, blockDim.x / 32).x / static_cast<float>(t.columns);
    const float inverse = 1.0f / sqrtf(mean + t.epsilon);
    for_columns(t.columns, [&](std::int64_t column) {
      float x[1];
      load<Element::fp32>(t.branch != nullptr ? t.sum : t.x, first + column, x);
      x[0] *= inverse * t.weight[column];
      store<kElement>(t.y, first + column, x);
    });
  }
}

template <Element kElement>
__global__ void __launch_bounds__(kThreads) rms_norm_backward(const __grid_constant__ NormBackwardParameters p) {
  const cpu::RmsNormBackwardTask& t = p.task;
  float* const partial = p.partials + blockIdx.x * t.columns;
  for (std::int64_t row = blockIdx.x; row < t.rows; row += gridDim.x) {
    const std::int64_t first = row * t.columns;
    float2 sums = {0.0f, 0.0f};  // of x^2, of g * x
    for_columns(t.columns, [&](std::int64_t column) {
      float dy[1];
      load<kElement>(t.dy, first + column, dy);
      const float x = t.x[first + column];
      sums.x = fmaf(x, x, sums.x);
      sums.y = fmaf(dy[0] * t.weight[column], x, sums.y);
    });
    sums = sum_of_row(sums, blockDim.x / 32);
    const auto columns = static_cast<float>(t.columns);
    const float inverse = 1.0f / sqrtf(sums.x / columns + t.epsilon), mean = inverse * sums.y / columns;
    for_columns(t.columns, [&](std::int64_t column) {
      float dy[1], dx[1] = {t.accumulate ? t.dx[first + column] : 0.0f};
      load<kElement>(t.dy, first + column, dy);
      const float n = t.x[first + column] * inverse;
      dx[0] += inverse * (dy[0] * t.weight[column] - n * mean);
      partial[column] = dy[0] * n + (row == blockIdx.x ? 0.0f : partial[column]);
      store<Element::fp32>(t.dx, first + column, dx);
      if (t.rounded != nullptr) store<Element::bf16>(t.rounded, first + column, dx);
    });
  }
}

}  // namespace

const void* rms_norm_kernel(Element element, bool held) {
  if (element == Element::fp32)
    return held ? reinterpret_cast<const void*>(&rms_norm_held<Element::fp32>)
                : reinterpret_cast<const void*>(&rms_norm<Element::fp32>);
  return held ? reinterpret_cast<const void*>(&rms_norm_held<Element::bf16>)
              : reinterpret_cast<const void*>(&rms_norm<Element::bf16>);
}
const void* rms_norm_backward_kernel(Element element, bool held) {
  if (element == Element::fp32)
    return held ? reinterpret_cast<const void*>(&rms_norm_backward_held<Element::fp32>)
                : reinterpret_cast<const void*>(&rms_norm_backward<Element::fp32>);
  return held ? reinterpret_cast<const void*>(&rms_norm_backward_held<Element::bf16>)
              : reinterpret_cast<const void*>(&rms_norm_backward<Element::bf16>);
}

}  // namespace fovea::model

// A thread block takes one token after another: its threads compute the angles of the position, then each of its warps
// transforms some of the heads. A lane reads and writes the same columns in every row: pairs first, then the others.
#include "cuda/device/element.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "heads/cuda/angles.cuh"
#include "heads/gpu_grid.h"

namespace fovea::heads {
namespace {

using cuda::load_element;
using cuda::store_element;

constexpr int kThreads = static_cast<int>(kGpuWarps) * 32;

// The first element of a row.
template <class Ref>
__device__ __forceinline__ std::int64_t row_of(const Ref& tensor, std::int64_t batch, std::int64_t head,
                                               std::int64_t position) {
  return batch * tensor.batch_stride + head * tensor.head_stride + position * tensor.row_stride;
}

__device__ __forceinline__ float sum_of_warp(float value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

// The columns of a lane: item i < pairs is a pair, any other a single column.
struct Columns {
  std::int64_t a, b;
};
__device__ __forceinline__ Columns columns_of(const RotationParameters& r, std::int64_t item) {
  if (item < r.pairs)
    return r.halves ? Columns{r.first_column + item, r.first_column + item + r.pairs}
                    : Columns{r.first_column + 2 * item, r.first_column + 2 * item + 1};
  const std::int64_t column = item - r.pairs;
  return {column < r.first_column ? column : column + 2 * r.pairs, -1};
}

__global__ void __launch_bounds__(kThreads) forward(const __grid_constant__ ForwardParameters p) {
  extern __shared__ float2 angles[];
  const std::int64_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool normalises = p.weight.data != nullptr;
  // Columns that stay as they are need not be copied onto themselves.
  const bool pairs_only = !normalises && p.from.data == p.to.data;
  const std::int64_t items = pairs_only ? p.rotation.pairs : p.dim - p.rotation.pairs;
  for (std::int64_t token = blockIdx.x; token < p.tokens; token += gridDim.x) {
    const std::int64_t batch = token / p.len, position = token - batch * p.len;
    __syncthreads();  // the last token's angles were read
    compute_angles(p.rotation, position, angles);
    __syncthreads();
    for (std::int64_t head = warp; head < p.heads; head += kGpuWarps) {
      const std::int64_t from = row_of(p.from, batch, head, position), to = row_of(p.to, batch, head, position);
      float factor = 1.0f;
      if (normalises) {
        float squares = 0.0f;
        for (std::int64_t c = lane; c < p.dim; c += 32) {
          const float x = load_element(p.from.data, p.from.kind, from + c);
          squares += x * x;
        }
        factor = 1.0f / sqrtf(sum_of_warp(squares) / static_cast<float>(p.dim) + p.epsilon);
      }
      for (std::int64_t item = lane; item < items; item += 32) {
        const auto [a, b] = columns_of(p.rotation, item);
        float2 pair = make_float2(load_element(p.from.data, p.from.kind, from + a),
                                  b < 0 ? 0.0f : load_element(p.from.data, p.from.kind, from + b));
        if (normalises) {
          pair.x *= factor * load_element(p.weight.data, p.weight.kind, a);
          if (b >= 0) pair.y *= factor * load_element(p.weight.data, p.weight.kind, b);
        }
        if (b >= 0) pair = rotated(pair, angles[item]);
        store_element(p.to.data, p.to.kind, to + a, pair.x);
        if (b >= 0) store_element(p.to.data, p.to.kind, to + b, pair.y);
      }
    }
  }
}

// The gradient of the columns before they were rotated.
__device__ __forceinline__ float2 gradient_of(const BackwardParameters& p, std::int64_t dy, const Columns& columns,
                                              const float2* angles, std::int64_t item) {
  float2 pair = make_float2(0.0f, 0.0f);
#pragma unroll 1
  for (std::int64_t head = 0; head < p.summed; ++head) {
    const std::int64_t row = dy + head * p.dy.head_stride;
    pair.x += load_element(p.dy.data, p.dy.kind, row + columns.a);
    if (columns.b >= 0) pair.y += load_element(p.dy.data, p.dy.kind, row + columns.b);
  }
  return columns.b < 0 ? pair : rotated(pair, make_float2(angles[item].x, -angles[item].y));
}

// With n = x factor: dx = factor (g w - n mean(g w n)), dweight += g n.
struct NormGradient {
  float factor, mean;
  __device__ float operator()(float g, float x, float weight) const {
    return factor * (g * weight - x * factor * mean);
  }
};

__device__ __forceinline__ NormGradient norm_gradient_of(const BackwardParameters& p, std::int64_t x, std::int64_t dy,
                                                         const float2* angles) {
  float squares = 0.0f, products = 0.0f;
#pragma unroll 1
  for (std::int64_t item = threadIdx.x % 32; item < p.dim - p.rotation.pairs; item += 32) {
    const Columns columns = columns_of(p.rotation, item);
    const float2 gradient = gradient_of(p, dy, columns, angles, item);
    const auto add = [&](float g, std::int64_t column) {
      const float value = load_element(p.x.data, p.x.kind, x + column);
      squares += value * value;
      products += g * load_element(p.weight.data, p.weight.kind, column) * value;
    };
    add(gradient.x, columns.a);
    if (columns.b >= 0) add(gradient.y, columns.b);
  }
  const auto count = static_cast<float>(p.dim);
  const float factor = 1.0f / sqrtf(sum_of_warp(squares) / count + p.epsilon);
  return {factor, factor * sum_of_warp(products) / count};
}

__global__ void __launch_bounds__(kThreads) backward(const __grid_constant__ BackwardParameters p) {
  extern __shared__ float2 angles[];
  const std::int64_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, items = p.dim - p.rotation.pairs;
  const bool normalised = p.weight.data != nullptr;
  float* const partial = p.partial == nullptr ? nullptr : p.partial + (blockIdx.x * kGpuWarps + warp) * p.dim;
#pragma unroll 1
  for (std::int64_t item = lane; partial != nullptr && item < items; item += 32) {
    const auto [a, b] = columns_of(p.rotation, item);
    partial[a] = 0.0f;
    if (b >= 0) partial[b] = 0.0f;
  }
  for (std::int64_t token = blockIdx.x; token < p.tokens; token += gridDim.x) {
    const std::int64_t batch = token / p.len, position = token - batch * p.len;
    __syncthreads();  // the last token's angles were read
    compute_angles(p.rotation, position, angles);
    __syncthreads();
#pragma unroll 1
    for (std::int64_t head = warp; head < p.heads; head += kGpuWarps) {
      const std::int64_t dy = row_of(p.dy, batch, head, position), dx = row_of(p.dx, batch, head, position),
                         x = row_of(p.x, batch, head, position);
      NormGradient norm{};
      if (normalised) norm = norm_gradient_of(p, x, dy, angles);
#pragma unroll 1
      for (std::int64_t item = lane; item < items; item += 32) {
        const Columns columns = columns_of(p.rotation, item);
        const float2 gradient = gradient_of(p, dy, columns, angles, item);
        const auto finish = [&](float g, std::int64_t column) {
          if (normalised) {
            const float value = load_element(p.x.data, p.x.kind, x + column);
            if (partial != nullptr) partial[column] += g * value * norm.factor;
            g = norm(g, value, load_element(p.weight.data, p.weight.kind, column));
          }
          if (p.accumulate) g += load_element(p.dx.data, p.dx.kind, dx + column);
          store_element(p.dx.data, p.dx.kind, dx + column, g);
        };
        finish(gradient.x, columns.a);
        if (columns.b >= 0) finish(gradient.y, columns.b);
      }
    }
  }
}

// Each warp adds every so many rows, then their sums are added in order.
__global__ void __launch_bounds__(kSumThreads) sum(const __grid_constant__ SumParameters p) {
  constexpr int kWarps = kSumThreads / kSumColumns;
  __shared__ float sums[kWarps][kSumColumns];
  const int lane = static_cast<int>(threadIdx.x) % kSumColumns, warp = static_cast<int>(threadIdx.x) / kSumColumns;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kSumColumns + lane;
  float total = 0.0f;
  cuda::ptx::griddepcontrol_wait();
  if (column < p.columns) {
#pragma unroll 8
    for (std::int64_t row = warp; row < p.rows; row += kWarps) total += p.partial[row * p.columns + column];
  }
  sums[warp][lane] = total;
  __syncthreads();
  if (warp > 0 || column >= p.columns) return;
  for (int other = 1; other < kWarps; ++other) total += sums[other][lane];
  if (p.accumulate) total += load_element(p.to.data, p.to.kind, column);
  store_element(p.to.data, p.to.kind, column, total);
}

}  // namespace

const void* forward_kernel() { return reinterpret_cast<const void*>(&forward); }
const void* backward_kernel() { return reinterpret_cast<const void*>(&backward); }
const void* sum_kernel() { return reinterpret_cast<const void*>(&sum); }

}  // namespace fovea::heads

// Copies with a bias, column sums, and products without cuBLASLt: simple loops, for any element type and strides.
#include "cuda/device/element.cuh"
#include "linear/cuda/passes.h"

namespace fovea::linear {
namespace {

using cuda::load_element;
using cuda::store_element;

__global__ void __launch_bounds__(kPassThreads) row_pass(const __grid_constant__ RowPass p) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * (kPassThreads / 32);
  for (std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * kPassThreads + threadIdx.x) / 32; row < p.rows;
       row += step) {
    const std::int64_t sequence = row / p.len, batch = sequence / p.heads, head = sequence - batch * p.heads;
    const std::int64_t position = row - sequence * p.len;
    const std::int64_t from = batch * p.from.batch_stride + head * p.from.head_stride + position * p.from.row_stride;
    const std::int64_t to = batch * p.to.batch_stride + head * p.to.head_stride + position * p.to.row_stride;
    for (std::int64_t column = threadIdx.x % 32; column < p.dim; column += 32) {
      float value = p.from.data == nullptr ? 0.0f : load_element(p.from.data, p.from.kind, from + column);
      if (p.bias.data != nullptr) value += load_element(p.bias.data, p.bias.kind, head * p.dim + column);
      store_element(p.to.data, p.to.kind, to + column, value);
    }
  }
}

__global__ void __launch_bounds__(kPassThreads) partial_sums(const __grid_constant__ ColumnSum p) {
  constexpr int kRowsAtOnce = kPassThreads / kSumColumns;
  __shared__ float sums[kRowsAtOnce][kSumColumns];
  const std::int64_t column_tiles = (p.columns + kSumColumns - 1) / kSumColumns;
  const std::int64_t chunk = blockIdx.x / column_tiles;
  const int lane = static_cast<int>(threadIdx.x) % kSumColumns, warp = static_cast<int>(threadIdx.x) / kSumColumns;
  const std::int64_t column = (blockIdx.x - chunk * column_tiles) * kSumColumns + lane;
  const std::int64_t first = chunk * kSumRows, end = min(p.rows, first + kSumRows);
  float sum = 0.0f;
  if (column < p.columns) {
    for (std::int64_t row = first + warp; row < end; row += kRowsAtOnce)
      sum += load_element(p.from.data, p.from.kind, row * p.from.row_stride + column);
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || column >= p.columns) return;
  for (int other = 1; other < kRowsAtOnce; ++other) sum += sums[other][lane];
  p.partial[chunk * p.columns + column] = sum;
}

__global__ void __launch_bounds__(kPassThreads) final_sums(const __grid_constant__ ColumnSum p) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kPassThreads + threadIdx.x;
  if (column >= p.columns) return;
  float sum = 0.0f;
  for (std::int64_t chunk = 0; chunk * kSumRows < p.rows; ++chunk) sum += p.partial[chunk * p.columns + column];
  if (p.accumulate) sum += load_element(p.to.data, p.to.kind, column);
  store_element(p.to.data, p.to.kind, column, sum);
}

constexpr int kTileK = 16;      // columns of a (rows of b) per step
constexpr int kThreadTile = 4;  // rows and columns of the result per thread

// Loads one step of an operand into shared memory, transposed to [k][line]. A line is a row of a or a column of b.
// `lines` and `depth` count what is left of the operand; beyond them the tile is zero.
template <ElementKind kKind>
__device__ __forceinline__ void load_operand_tile(float (&tile)[kTileK][kProductTile], const void* data,
                                                  std::int64_t line_stride, std::int64_t k_stride, std::int64_t lines,
                                                  std::int64_t depth) {
  const bool k_is_contiguous = k_stride == 1;  // neighbouring threads read neighbours in memory
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kTileK * kProductTile; i += kPassThreads) {
    const int k = k_is_contiguous ? i % kTileK : i / kProductTile,
              line = k_is_contiguous ? i / kTileK : i % kProductTile;
    tile[k][line] = line < lines && k < depth ? load_element(data, kKind, line * line_stride + k * k_stride) : 0.0f;
  }
}

template <ElementKind kKind>
__device__ __forceinline__ const void* advanced(const void* data, std::int64_t elements) {
  return static_cast<const char*>(data) + elements * (kKind == ElementKind::fp32 ? 4 : 2);
}

template <ElementKind kKind>
__global__ void __launch_bounds__(kPassThreads) product(const __grid_constant__ ProductPass p) {
  __shared__ float a[kTileK][kProductTile], b[kTileK][kProductTile];
  const unsigned tiles = p.row_tiles * p.column_tiles, batch = blockIdx.x / tiles, tile = blockIdx.x - batch * tiles;
  const unsigned tile_row = tile / p.column_tiles;
  const std::int64_t row = std::int64_t{tile_row} * kProductTile;
  const std::int64_t column = std::int64_t{tile - tile_row * p.column_tiles} * kProductTile;
  const int thread_row = static_cast<int>(threadIdx.x) / 16 * kThreadTile,
            thread_column = static_cast<int>(threadIdx.x) % 16 * kThreadTile;
  float sums[kThreadTile][kThreadTile] = {};
#pragma unroll 1
  for (std::int64_t k = 0; k < p.k; k += kTileK) {
    load_operand_tile<kKind>(
        a, advanced<kKind>(p.a.data, batch * p.a.batch_stride + row * p.a.row_stride + k * p.a.column_stride),
        p.a.row_stride, p.a.column_stride, p.m - row, p.k - k);
    load_operand_tile<kKind>(
        b, advanced<kKind>(p.b.data, batch * p.b.batch_stride + k * p.b.row_stride + column * p.b.column_stride),
        p.b.column_stride, p.b.row_stride, p.n - column, p.k - k);
    __syncthreads();
#pragma unroll
    for (int step = 0; step < kTileK; ++step) {
#pragma unroll
      for (int i = 0; i < kThreadTile; ++i) {
#pragma unroll
        for (int j = 0; j < kThreadTile; ++j)
          sums[i][j] = fmaf(a[step][thread_row + i], b[step][thread_column + j], sums[i][j]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kThreadTile; ++i) {
#pragma unroll
    for (int j = 0; j < kThreadTile; ++j) {
      const std::int64_t at_row = row + thread_row + i, at_column = column + thread_column + j;
      if (at_row >= p.m || at_column >= p.n) continue;
      const std::int64_t at = batch * p.c.batch_stride + at_row * p.c.row_stride + at_column;
      float value = p.alpha * sums[i][j];
      if (p.beta != 0.0f) value += p.beta * load_element(p.c.data, p.result, at);
      if (p.bias.data != nullptr) value += load_element(p.bias.data, kKind, batch * p.bias.batch_stride + at_column);
      store_element(p.c.data, p.result, at, value);
    }
  }
}

template <ElementKind kKind>
const void* address() {
  return reinterpret_cast<const void*>(&product<kKind>);
}

}  // namespace

const void* row_pass_kernel() { return reinterpret_cast<const void*>(&row_pass); }
const void* partial_sums_kernel() { return reinterpret_cast<const void*>(&partial_sums); }
const void* final_sums_kernel() { return reinterpret_cast<const void*>(&final_sums); }

const void* product_kernel(ElementKind operands) {
  return operands == ElementKind::fp32   ? address<ElementKind::fp32>()
         : operands == ElementKind::bf16 ? address<ElementKind::bf16>()
                                         : address<ElementKind::fp16>();
}

}  // namespace fovea::linear

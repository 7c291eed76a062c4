// Copies the rows of several matrices. A thread block takes one tile after another, each from one matrix.
#include "cuda/ptx/grid_dependency.cuh"
#include "layers/cuda/kernels.h"

namespace fovea::layers {
namespace {

// Threads behind the end load the last unit again and store nothing.
template <class Unit>
__device__ __forceinline__ void copy_tile(const RowCopy& copy, std::int64_t tile) {
  const std::int64_t first = tile * kCopyTile + threadIdx.x;
  std::int64_t from[kCopyUnits];
#pragma unroll
  for (int i = 0; i < kCopyUnits; ++i) {
    const std::int64_t unit = min(first + i * kCopyThreads, copy.units - 1);
    const std::int64_t row = copy.row_units == copy.units ? 0 : unit / copy.row_units;
    from[i] = unit + row * (copy.from_stride - copy.row_units);
  }
  Unit values[kCopyUnits];
#pragma unroll
  for (int i = 0; i < kCopyUnits; ++i) values[i] = static_cast<const Unit*>(copy.from)[from[i]];
#pragma unroll
  for (int i = 0; i < kCopyUnits; ++i) {
    const std::int64_t unit = first + i * kCopyThreads;
    if (unit < copy.units) static_cast<Unit*>(copy.to)[unit] = values[i];
  }
}

__global__ void __launch_bounds__(kCopyThreads) copy_rows(const __grid_constant__ RowCopies p) {
  cuda::ptx::griddepcontrol_wait();
  for (std::int64_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    int index = p.count - 1;
    while (tile < p.copies[index].first_tile) --index;
    const RowCopy& copy = p.copies[index];
    if (copy.wide)
      copy_tile<uint4>(copy, tile - copy.first_tile);
    else
      copy_tile<std::uint16_t>(copy, tile - copy.first_tile);
  }
}

}  // namespace

const void* copy_rows_kernel() { return reinterpret_cast<const void*>(&copy_rows); }

}  // namespace fovea::layers

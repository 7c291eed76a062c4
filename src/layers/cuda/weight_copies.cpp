// Enqueues the kernel that copies weights. It waits for the kernel ahead itself, so it may be launched early.
#include "layers/cuda/weight_copies.h"

#include <algorithm>

#include "cuda/runtime/launch.h"
#include "layers/cuda/kernels.h"

namespace fovea::layers {
namespace {

constexpr std::int64_t kMaxGrid = 0x7fffffff, kWide = 16, kNarrow = 2;  // thread blocks; bytes of a unit

static_assert(kMostCopies >= static_cast<int>(kSlots));

bool is_wide(const void* data, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % kWide == 0 && bytes % kWide == 0;
}

// Rows that lie densely are one long row.
RowCopy copy_of(const WeightCopy& weight, std::int64_t first_tile) {
  const TensorView& from = weight.from;
  const std::int64_t element = size_of(from.dtype), bytes = from.sizes[2] * from.sizes[3] * element;
  const bool dense = from.sizes[2] == 1 || from.strides[2] == from.sizes[3];
  const std::int64_t row = dense ? bytes : from.sizes[3] * element, stride = dense ? row : from.strides[2] * element;
  const bool wide = is_wide(from.data, row) && is_wide(weight.to.data, stride);
  const std::int64_t unit = wide ? kWide : kNarrow;
  return {from.data, weight.to.data, bytes / unit, row / unit, stride / unit, first_tile, wide};
}

}  // namespace

void copy_weights_on_gpu(std::span<const WeightCopy> copies, const core::RunContext& context) {
  RowCopies all;
  for (const WeightCopy& weight : copies) {
    const RowCopy& copy = all.copies[all.count++] = copy_of(weight, all.tiles);
    all.tiles += (copy.units + kCopyTile - 1) / kCopyTile;
  }
  cuda::launch(copy_rows_kernel(), std::min(all.tiles, kMaxGrid), kCopyThreads, 0,
               static_cast<cudaStream_t>(context.stream), &all, cuda::Dependency::programmatic);
}

}  // namespace fovea::layers

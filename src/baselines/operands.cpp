// Uses a view in place if a library can read or write it, or else a dense copy.
#include "baselines/operands.h"

#include <cstring>

#include "baselines/blocks.h"
#include "baselines/conversions.h"
#include "linear/blas/blas.h"

namespace fovea::baselines {
namespace {

// The row stride of a view that libraries can read or write in place; 0 for other views.
template <class Pointer>
std::int64_t library_stride(const BasicTensorView<Pointer>& view) {
  if (view.sizes[2] <= 1) return view.sizes[3];
  const std::int64_t stride = view.strides[2];
  return stride >= view.sizes[3] && stride <= linear::blas::kLargestSize ? stride : 0;
}

}  // namespace

Operand operand(const core::RunContext& context, const TensorView& view, float* scratch) {
  const DType dtype = view.dtype == DType::bf16 ? DType::bf16 : DType::fp32;
  const std::int64_t stride = library_stride(view);
  if (view.dtype == dtype && stride > 0) return {view.data, dtype, view.strides[0], view.strides[1], stride};
  const Sizes strides = dense_strides(view.sizes);
  for_each_block(context, view.sizes[0], view.sizes[1], view.sizes[2], [&](const RowBlock& block) {
    for (std::int64_t row = block.first; row < block.first + block.rows; ++row) {
      const std::int64_t from = row_index(view, block.batch, block.head, row);
      const std::int64_t to = block.batch * strides[0] + block.head * strides[1] + row * strides[2];
      if (view.dtype == dtype) {
        std::memcpy(reinterpret_cast<char*>(scratch) + to * size_of(dtype),
                    static_cast<const char*>(view.data) + from * size_of(dtype),
                    static_cast<std::size_t>(view.sizes[3] * size_of(dtype)));
      } else {
        widen_row(scratch + to, view.dtype, view.data, from, view.sizes[3]);
      }
    }
  });
  return {scratch, dtype, strides[0], strides[1], strides[2]};
}

Result result(const MutableTensorView& view, float* scratch, bool accumulate) {
  const std::int64_t stride = library_stride(view);
  if (!accumulate && view.dtype == DType::fp32 && stride > 0)
    return {static_cast<float*>(view.data), view.strides[0], view.strides[1], stride};
  const Sizes strides = dense_strides(view.sizes);
  return {scratch, strides[0], strides[1], strides[2]};
}

void deliver(const core::RunContext& context, const Result& from, const MutableTensorView& view, bool accumulate) {
  if (from.data == view.data) return;
  for_each_block(context, view.sizes[0], view.sizes[1], view.sizes[2], [&](const RowBlock& block) {
    const float* source = from.matrix(block.batch, block.head);
    for (std::int64_t row = block.first; row < block.first + block.rows; ++row) {
      const std::int64_t index = row_index(view, block.batch, block.head, row);
      if (accumulate) {
        float* to = static_cast<float*>(view.data) + index;
        for (std::int64_t i = 0; i < view.sizes[3]; ++i) to[i] += source[row * from.row_stride + i];
      } else {
        narrow_row(view.data, view.dtype, index, source + row * from.row_stride, view.sizes[3]);
      }
    }
  });
}

void fill_zero(const core::RunContext& context, const MutableTensorView& view) {
  for_each_block(context, view.sizes[0], view.sizes[1], view.sizes[2], [&](const RowBlock& block) {
    for (std::int64_t row = block.first; row < block.first + block.rows; ++row) {
      char* to = static_cast<char*>(view.data) + row_index(view, block.batch, block.head, row) * size_of(view.dtype);
      std::memset(to, 0, static_cast<std::size_t>(view.sizes[3] * size_of(view.dtype)));
    }
  });
}

}  // namespace fovea::baselines

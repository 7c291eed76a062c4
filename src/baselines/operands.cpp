// In place where a library can read or write the view, else a dense fp32 copy.
#include "baselines/operands.h"

#include <algorithm>
#include <cstring>

#include "baselines/blocks.h"
#include "baselines/products.h"
#include "baselines/row_passes.h"

namespace fovea::baselines {
namespace {

// Row stride of a view that a library reads or writes in place; 0 if it cannot.
template <class Pointer>
std::int64_t library_stride(const BasicTensorView<Pointer>& view) {
  if (view.dtype != DType::fp32) return 0;
  if (view.sizes[2] <= 1) return view.sizes[3];
  const std::int64_t stride = view.strides[2];
  return stride >= view.sizes[3] && stride <= kLargestProductSize ? stride : 0;
}

template <class Pointer, class View>
BasicOperand<Pointer> in_place_or(const View& view, float* scratch) {
  if (const std::int64_t stride = library_stride(view); stride > 0)
    return {static_cast<Pointer>(view.data), view.strides[0], view.strides[1], stride};
  return {scratch, view.sizes[1] * view.sizes[2] * view.sizes[3], view.sizes[2] * view.sizes[3], view.sizes[3]};
}

}  // namespace

Operand operand(const core::RunContext& context, const TensorView& view, float* scratch) {
  const auto found = in_place_or<const float*>(view, scratch);
  if (found.data != scratch) return found;
  for_each_block(context, view.sizes[0], view.sizes[1], view.sizes[2], [&](const RowBlock& block) {
    float* to = scratch + block.batch * found.batch_stride + block.head * found.head_stride;
    for (std::int64_t row = block.first; row < block.first + block.rows; ++row) {
      widen_row(to + row * found.row_stride, view.dtype, view.data, row_index(view, block.batch, block.head, row),
                view.sizes[3]);
    }
  });
  return found;
}

Result result(const MutableTensorView& view, float* scratch) { return in_place_or<float*>(view, scratch); }

bool is_direct(const Result& from, const MutableTensorView& view) { return from.data == view.data; }

void deliver(const core::RunContext& context, const Result& from, const MutableTensorView& view, bool accumulate) {
  if (is_direct(from, view)) return;
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

void widen_row(float* to, DType type, const void* from, std::int64_t index, std::int64_t count) {
  if (type == DType::fp32) {
    std::copy_n(static_cast<const float*>(from) + index, count, to);
  } else {
    const auto widen = type == DType::bf16 ? row_passes().widen_bf16 : row_passes().widen_fp16;
    widen(to, static_cast<const std::uint16_t*>(from) + index, count);
  }
}

void narrow_row(void* to, DType type, std::int64_t index, const float* from, std::int64_t count) {
  if (type == DType::fp32) {
    std::copy_n(from, count, static_cast<float*>(to) + index);
  } else {
    const auto narrow = type == DType::bf16 ? row_passes().narrow_bf16 : row_passes().narrow_fp16;
    narrow(static_cast<std::uint16_t*>(to) + index, from, count);
  }
}

}  // namespace fovea::baselines

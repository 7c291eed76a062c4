// Tensors as the matrix libraries want them: fp32, rows of a common stride. What a library can read in place stays.
#pragma once

#include <cstdint>

#include "core/implementation.h"

namespace fovea::baselines {

// fp32 matrices [len, dim], one per (batch, head).
template <class Pointer>
struct BasicOperand {
  Pointer data;
  std::int64_t batch_stride, head_stride, row_stride;
  Pointer matrix(std::int64_t batch, std::int64_t head) const {
    return data + batch * batch_stride + head * head_stride;
  }
};
using Operand = BasicOperand<const float*>;
using Result = BasicOperand<float*>;

// The view itself, or its copy in `scratch` (as many floats as the view has elements).
Operand operand(const core::RunContext& context, const TensorView& view, float* scratch);

// Where products may write what becomes `view`: the view itself, or `scratch`.
Result result(const MutableTensorView& view, float* scratch);

// Brings what was written to `from` into the view, adding to what stands there if `accumulate`; nothing to do if the
// products wrote to the view itself.
void deliver(const core::RunContext& context, const Result& from, const MutableTensorView& view, bool accumulate);

// Whether `result` is the view itself, so that accumulating falls to the product.
bool is_direct(const Result& from, const MutableTensorView& view);

void fill_zero(const core::RunContext& context, const MutableTensorView& view);

// One row of any type as floats, and back.
void widen_row(float* to, DType type, const void* from, std::int64_t index, std::int64_t count);
void narrow_row(void* to, DType type, std::int64_t index, const float* from, std::int64_t count);

// Index of the first element of row `row`.
template <class Pointer>
std::int64_t row_index(const BasicTensorView<Pointer>& view, std::int64_t batch, std::int64_t head, std::int64_t row) {
  return batch * view.strides[0] + head * view.strides[1] + row * view.strides[2];
}

}  // namespace fovea::baselines

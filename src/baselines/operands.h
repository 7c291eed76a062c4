// Tensors in the form that matrix libraries take: fp32 or bf16, with one row stride. Suitable tensors stay in place.
#pragma once

#include <cstdint>

#include "core/plan.h"
#include "fovea/attention.h"
#include "linear/product.h"

namespace fovea::baselines {

// Matrices [len, dim], one per (batch, head). fp16 is widened, because no library multiplies it.
struct Operand {
  const void* data;
  DType dtype;
  std::int64_t batch_stride, head_stride, row_stride;
  linear::MatrixBatch matrix(std::int64_t batch, std::int64_t head) const {
    const std::int64_t first = batch * batch_stride + head * head_stride;
    return {static_cast<const char*>(data) + first * size_of(dtype), dtype, row_stride};
  }
};

// The same for results of products, always in fp32.
struct Result {
  float* data;
  std::int64_t batch_stride, head_stride, row_stride;
  float* matrix(std::int64_t batch, std::int64_t head) const {
    return data + batch * batch_stride + head * head_stride;
  }
  linear::MatrixBatch rows(std::int64_t batch, std::int64_t head, std::int64_t first) const {
    return {matrix(batch, head) + first * row_stride, DType::fp32, row_stride};
  }
};

// The view itself, or its copy in `scratch` (as many floats as the view has elements).
Operand operand(const core::RunContext& context, const TensorView& view, float* scratch);

// The memory that products write for `view`: the view itself, or `scratch`, for example if the view accumulates.
Result result(const MutableTensorView& view, float* scratch, bool accumulate);

// Copies `from` to the view, or adds it if `accumulate`. Does nothing if the products wrote to the view itself.
void deliver(const core::RunContext& context, const Result& from, const MutableTensorView& view, bool accumulate);

void fill_zero(const core::RunContext& context, const MutableTensorView& view);

// Index of the first element of row `row`.
template <class Pointer>
std::int64_t row_index(const BasicTensorView<Pointer>& view, std::int64_t batch, std::int64_t head, std::int64_t row) {
  return batch * view.strides[0] + head * view.strides[1] + row * view.strides[2];
}

}  // namespace fovea::baselines

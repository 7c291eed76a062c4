// The products of a model's passes, on matrices in its memory. A pass runs them between its other parts; products.cpp
// runs them alone.
#pragma once

#include "fovea/linear.h"
#include "model/model.h"

namespace fovea::model {

struct Model::Products {
  Model& model;
  const core::RunContext& context;
  const Config& c = model.config_;
  const MemoryPlan& memory = model.memory_;
  std::int64_t rows = model.extent_.rows();
  Buffer workspace{model.at(memory.workspace), memory.workspace_bytes};

  void* at(std::int64_t offset) const { return model.at(offset); }
  float* floats(std::int64_t offset) const { return model.floats(offset); }
  float* weight(std::int64_t offset) const { return floats(memory.weights) + offset; }
  float* gradient(std::int64_t offset) const { return floats(memory.gradients) + offset; }
  // Of a matrix that products read, and its gradient.
  MutableTensorView weights(std::int64_t offset, std::int64_t lines, std::int64_t columns) const {
    void* const data = model.rounded() == nullptr ? static_cast<void*>(weight(offset)) : model.rounded() + offset;
    return matrix(data, lines, columns);
  }
  MutableTensorView gradients(std::int64_t offset, std::int64_t lines, std::int64_t columns) const {
    return matrix(gradient(offset), lines, columns, DType::fp32);
  }

  MutableTensorView matrix(void* data, std::int64_t lines, std::int64_t columns, DType dtype) const {
    return contiguous(data, dtype, {1, 1, lines, columns}, model.device());
  }
  MutableTensorView matrix(void* data, std::int64_t lines, std::int64_t columns) const {
    return matrix(data, lines, columns, c.dtype);
  }
  MutableTensorView logits() const { return matrix(at(memory.logits), rows, c.vocabulary, DType::fp32); }
  // In bf16 the gradient fills the first half of each row.
  MutableTensorView logit_gradient() const {
    MutableTensorView view = matrix(at(memory.logits), rows, c.vocabulary);
    view.strides[2] = c.vocabulary * size_of(DType::fp32) / size_of(c.dtype);
    return view;
  }

  LinearOptions options_of(const Plan& plan) const {
    return {.threads = context.threads,
            .thread_pool = context.thread_pool,
            .cancel = context.cancel,
            .stream = context.stream,
            .workspace = workspace,
            .plan = &plan};
  }

  // The weight at `offset` has the columns of y as rows.
  void multiply(const ProductCalls& calls, const MutableTensorView& x, std::int64_t offset,
                const MutableTensorView& y) const {
    linear_forward({.x = x, .weight = weights(offset, y.sizes[3], x.sizes[3]), .y = y}, options_of(calls.forward));
  }

  // The two gradients by calls of their own.
  void multiply_to_dx(const Plan& plan, const MutableTensorView& dx, std::int64_t offset,
                      const MutableTensorView& dy) const {
    linear_backward({.weight = weights(offset, dy.sizes[3], dx.sizes[3]), .dy = dy, .dx = dx}, options_of(plan));
  }
  void multiply_to_dweight(const BackwardPlans& plans, const MutableTensorView& x, std::int64_t offset,
                           const MutableTensorView& dy, bool accumulate = false) const {
    linear_backward({.x = x, .dy = dy, .dweight = gradients(offset, dy.sizes[3], x.sizes[3]), .accumulate = accumulate},
                    options_of(plans.plan(accumulate)));
  }

  // dx is written; the weight's gradient too, or it is added.
  void multiply_backward(const ProductCalls& calls, const MutableTensorView& x, const MutableTensorView& dx,
                         std::int64_t offset, const MutableTensorView& dy, bool accumulate = false) const {
    linear_backward({.x = x,
                     .weight = weights(offset, dy.sizes[3], x.sizes[3]),
                     .dy = dy,
                     .dx = dx,
                     .dweight = gradients(offset, dy.sizes[3], x.sizes[3]),
                     .accumulate = accumulate},
                    options_of(calls.backward.plan(accumulate)));
  }
};

}  // namespace fovea::model

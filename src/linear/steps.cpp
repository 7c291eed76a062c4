// If rows or columns of two tensors do not fold alike, a product becomes a batch of products. If the dimensions that
// are summed over do not fold, the tensor is copied first, so that each sum is computed by one product.
#include "linear/steps.h"

#include <algorithm>

#include "linear/matrix_view.h"
#include "linear/strided_batches.h"

namespace fovea::linear {
namespace {

// The view, or its copy at `memory` if the problem says so.
TensorView read(const TensorView& view, bool copies, void* memory, Steps& steps) {
  if (!copies) return view;
  steps.copies.push_back({view, dense_copy(view, memory)});
  return steps.copies.back().to;
}

// Two axes along which products of one shape repeat: batch elements, and heads.
struct Repeats {
  std::int64_t batches = 1, heads = 1;
  Spread a{}, b{}, c{};
};

// `bias_step`: elements of b from one bias to the next.
void add_products(const Repeats& repeats, const BatchedProduct& one, std::int64_t bias_step, Steps& steps) {
  for (const StridedBatch& part :
       strided_batches({repeats.batches, repeats.heads, 1}, repeats.a, repeats.b, repeats.c)) {
    BatchedProduct product = one;
    product.count = part.count;
    product.a = one.a.from(0, part.a);
    product.b = one.b.from(0, part.b);
    product.c = one.c.from(0, part.c);
    product.a.batch_stride = part.a_batch_stride;
    product.b.batch_stride = part.b_batch_stride;
    product.c.batch_stride = part.c_batch_stride;
    if (one.bias.data != nullptr) {
      product.bias = one.bias.from(0, part.b / bias_step);
      product.bias.batch_stride = part.b_batch_stride / bias_step;
    }
    steps.products.push_back(product);
  }
}

// Rows of a result and of the tensor that makes it: one matrix, or one for each batch element.
std::int64_t split_rows(MatrixView& from, MatrixView& to, Repeats& repeats) {
  if (from.rows_fold && to.rows_fold) return from.rows();
  if (from.len == 1) from.row = from.columns();
  if (to.len == 1) to.row = to.columns();
  repeats.batches = from.batches;
  repeats.a[0] = from.batch;
  repeats.c[0] = to.batch;
  return from.len;
}

// y = x weight^T + bias
void add_forward(MatrixView x, const MatrixView& weight, const TensorView& bias, MatrixView y, Steps& steps) {
  Repeats repeats;
  BatchedProduct product;
  product.m = split_rows(x, y, repeats);
  product.n = y.columns_fold ? y.columns() : y.dim;
  product.k = x.columns();
  if (!y.columns_fold) {
    repeats.heads = y.heads;
    repeats.b[1] = y.dim * weight.row;
    repeats.c[1] = y.head;
  }
  product.a = x.matrix();
  product.b = weight.matrix().transpose();
  product.c = y.matrix();
  if (bias) product.bias = {bias.data, bias.dtype, weight.rows()};
  add_products(repeats, product, weight.row, steps);
}

// dx = dy weight
void add_dx(MatrixView dy, const MatrixView& weight, MatrixView dx, bool accumulate, Steps& steps) {
  Repeats repeats;
  BatchedProduct product;
  product.m = split_rows(dy, dx, repeats);
  product.n = dx.columns_fold ? dx.columns() : dx.dim;
  product.k = dy.columns();
  if (!dx.columns_fold) {
    repeats.heads = dx.heads;
    repeats.b[1] = dx.dim;
    repeats.c[1] = dx.head;
  }
  product.a = dy.matrix();
  product.b = weight.matrix();
  product.c = dx.matrix();
  product.beta = accumulate ? 1.0f : 0.0f;
  add_products(repeats, product, 1, steps);
}

// dweight = dy^T x
void add_dweight(const MatrixView& dy, const MatrixView& x, const MatrixView& dweight, bool accumulate, Steps& steps) {
  Repeats repeats;
  BatchedProduct product;
  product.m = dy.columns_fold ? dy.columns() : dy.dim;
  product.n = x.columns_fold ? x.columns() : x.dim;
  product.k = dy.rows();
  if (!dy.columns_fold) {
    repeats.batches = dy.heads;
    repeats.a[0] = dy.head;
    repeats.c[0] = dy.dim * dweight.row;
  }
  if (!x.columns_fold) {
    repeats.heads = x.heads;
    repeats.b[1] = x.head;
    repeats.c[1] = x.dim;
  }
  product.a = dy.matrix().transpose();
  product.b = x.matrix();
  product.c = dweight.matrix();
  product.beta = accumulate ? 1.0f : 0.0f;
  add_products(repeats, product, 1, steps);
}

void add_dbias(const MatrixView& dy, const MutableTensorView& dbias, bool accumulate, Steps& steps) {
  const MatrixBatch to{dbias.data, dbias.dtype, dy.columns()};
  if (dy.columns_fold) {
    steps.sums.push_back({dy.matrix(), dy.rows(), dy.columns(), to, accumulate});
    return;
  }
  for (std::int64_t head = 0; head < dy.heads; ++head)
    steps.sums.push_back(
        {dy.matrix().from(0, head * dy.head), dy.rows(), dy.dim, to.from(0, head * dy.dim), accumulate});
}

}  // namespace

Steps steps_of(const Plan& plan, const LinearForwardTensors& t, void* workspace) {
  const LinearProblem& p = plan.problem;
  Steps steps;
  if (p.rows() == 0 || p.columns_out() == 0) return steps;
  if (p.columns_in() == 0) {
    steps.fills.push_back({t.y, t.bias});
    return steps;
  }
  const TensorView x = read(t.x, p.copies_x, workspace, steps);
  add_forward(MatrixView(x), MatrixView(t.weight), t.bias, MatrixView(t.y), steps);
  return steps;
}

Steps steps_of(const Plan& plan, const LinearBackwardTensors& t, void* workspace) {
  const LinearProblem& p = plan.problem;
  Steps steps;
  const bool inputs = p.columns_in() > 0, outputs = p.columns_out() > 0, rows = p.rows() > 0;
  const auto fill = [&steps](const MutableTensorView& to, bool accumulate) {
    if (!accumulate) steps.fills.push_back({to, {}});
  };
  if (p.wants_dx && rows && inputs && !outputs) fill(t.dx, p.accumulate_dx);
  if (p.wants_dweight && inputs && outputs && !rows) fill(t.dweight, p.accumulate);
  if (p.wants_dbias && outputs && !rows) fill(t.dbias, p.accumulate);
  if (!rows || !outputs) return steps;
  const TensorView dy = read(t.dy, p.copies_dy, workspace, steps);
  const MatrixView gradient(dy);
  if (p.wants_dx && inputs) add_dx(gradient, MatrixView(t.weight), MatrixView(t.dx), p.accumulate_dx, steps);
  if (p.wants_dweight && inputs) {
    const TensorView x = read(t.x, p.copies_x, static_cast<char*>(workspace) + plan.copied_dy_bytes, steps);
    add_dweight(gradient, MatrixView(x), MatrixView(t.dweight), p.accumulate, steps);
  }
  if (p.wants_dbias) add_dbias(gradient, t.dbias, p.accumulate, steps);
  return steps;
}

}  // namespace fovea::linear

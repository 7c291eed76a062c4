// Parameters of Linear's own GPU kernels, and the kernels' addresses.
#pragma once

#include <cstdint>

#include "cuda/device/tensor_ref.h"

namespace fovea::linear {

using cuda::ConstTensorRef;
using cuda::ElementKind;
using cuda::TensorRef;

constexpr int kPassThreads = 256;

// to = from + bias for every row of [batch, heads, len, dim]. If from.data is null, from is zero; if bias.data is null,
// nothing is added. The bias of head h and column d is element h * dim + d.
struct RowPass {
  std::int64_t rows = 0;
  std::int64_t heads = 1, len = 0, dim = 0;
  ConstTensorRef from;
  TensorRef to;
  ConstTensorRef bias;
};
const void* row_pass_kernel();  // one warp per row

// Sums of the columns of a matrix, by two kernels. The first sums kSumRows rows of kSumColumns columns per thread block
// into partial[chunk][column]. The second adds a column's partials in order: to[column] = sum, or += if `accumulate`.
constexpr std::int64_t kSumRows = 512, kSumColumns = 32;
struct ColumnSum {
  std::int64_t rows = 0, columns = 0;
  ConstTensorRef from;
  TensorRef to;
  float* partial = nullptr;
  bool accumulate = false;
};
const void* partial_sums_kernel();
const void* final_sums_kernel();  // one thread per column

// Matrix products without cuBLASLt: one thread block per tile of the result.
constexpr int kProductTile = 64;
// One operand of a batch of products. Strides count elements, after the transposition that the product asks for.
template <class Pointer>
struct OperandRef {
  Pointer data = nullptr;
  std::int64_t row_stride = 0, column_stride = 0, batch_stride = 0;
};
struct ProductPass {
  std::int64_t m = 0, n = 0, k = 0;
  unsigned row_tiles = 0, column_tiles = 0;  // times the batch: fewer than 2^31
  float alpha = 1.0f, beta = 0.0f;
  OperandRef<const void*> a, b;
  OperandRef<void*> c;
  OperandRef<const void*> bias;  // of the operands' type
  ElementKind result = ElementKind::fp32;
};
const void* product_kernel(ElementKind operands);

}  // namespace fovea::linear

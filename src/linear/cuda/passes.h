// Linear's own kernels on a GPU, as the host hands them their parameters.
#pragma once

#include <cstdint>

#include "cuda/device/tensor_ref.h"

namespace fovea::linear {

using cuda::ElementKind;
using cuda::TensorRef;

constexpr int kPassThreads = 256;

// Every row of [batch, heads, len, dim]: to = from + bias. Zeros where from.data is null, none where the bias is; its
// element of head h and column d is h * dim + d.
struct RowPass {
  std::int64_t rows = 0;
  std::int64_t heads = 1, len = 0, dim = 0;
  TensorRef from, to, bias;
};
const void* row_pass_kernel();  // a warp for each row

// Sums of kSumRows rows, 32 columns a block: partial[chunk][column]; then to[column] = the sum of its partials, in
// order, or += if `accumulate`.
constexpr std::int64_t kSumRows = 512, kSumColumns = 32;
struct ColumnSum {
  std::int64_t rows = 0, columns = 0;
  TensorRef from, to;
  float* partial = nullptr;
  bool accumulate = false;
};
const void* partial_sums_kernel();
const void* final_sums_kernel();  // a thread for each column

// The product where there is no library: a block for each tile of each product.
constexpr int kProductTile = 64;
struct OperandRef {
  const void* data = nullptr;
  std::int64_t row = 0, column = 0, apart = 0;  // strides as the product takes it
};
struct ProductPass {
  std::int64_t m = 0, n = 0, k = 0;
  unsigned row_tiles = 0, column_tiles = 0;  // together, of all products, fewer than 2^31
  float alpha = 1.0f, beta = 0.0f;
  OperandRef a, b, c, bias;
  ElementKind result = ElementKind::fp32;
};
const void* product_kernel(ElementKind operands);

}  // namespace fovea::linear

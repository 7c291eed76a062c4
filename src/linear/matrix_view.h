// A tensor [batch, heads, len, dim] as a matrix of rows (batch, len) and columns (heads, dim).
#pragma once

#include <cstdint>

#include "linear/product.h"

namespace fovea::linear {

// `row`: elements from one row to the next. `rows_fold`: the next batch element's rows follow at the same stride, so
// all batches are one matrix. `columns_fold`: the next head's columns follow at once, so all heads are one range of
// columns.
struct MatrixView {
  const void* data = nullptr;
  DType dtype = DType::fp32;
  std::int64_t batches = 0, heads = 0, len = 0, dim = 0;
  std::int64_t batch = 0, head = 0, row = 0;
  bool rows_fold = false, columns_fold = false;

  explicit MatrixView(const TensorView& t);

  std::int64_t rows() const { return batches * len; }
  std::int64_t columns() const { return heads * dim; }
  // In what one product reads: the leading dimension is at least the number of columns, as libraries require.
  bool rows_do_not_overlap() const {
    return (rows_fold ? rows() : len) <= 1 || row >= (columns_fold ? columns() : dim);
  }
  MatrixBatch matrix() const { return {data, dtype, row}; }
};

// Dense rows.
MutableTensorView dense_copy(const TensorView& t, void* data);

}  // namespace fovea::linear

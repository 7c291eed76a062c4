// A tensor [batch, heads, len, dim] as a matrix of rows (batch, len) and columns (heads, dim).
#pragma once

#include <cstdint>

#include "linear/product.h"

namespace fovea::linear {

// `row`: elements from one row to the next of a batch element, or of all where `rows_fold`: where the rows of the next
// batch element follow at the same stride. `columns_fold`: the columns of a head are followed by those of the next.
struct MatrixView {
  const void* data = nullptr;
  DType dtype = DType::fp32;
  std::int64_t batches = 0, heads = 0, len = 0, dim = 0;
  std::int64_t batch = 0, head = 0, row = 0;
  bool rows_fold = false, columns_fold = false;

  explicit MatrixView(const TensorView& t);

  std::int64_t rows() const { return batches * len; }
  std::int64_t columns() const { return heads * dim; }
  // Neighbouring rows of what one product reads lie apart, as libraries want it.
  bool rows_apart() const { return (rows_fold ? rows() : len) <= 1 || row >= (columns_fold ? columns() : dim); }
  MatrixBatch matrix() const { return {data, dtype, row}; }
};

// Dense rows.
MutableTensorView dense_copy(const TensorView& t, void* data);

}  // namespace fovea::linear

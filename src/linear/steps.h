// What one call of Linear does, the same on every device: copies, products, sums of columns.
#pragma once

#include <cstdint>
#include <vector>

#include "linear/plan.h"
#include "linear/product.h"

namespace fovea::linear {

// An input that products cannot read in place: copied to dense rows.
struct CopyStep {
  TensorView from;
  MutableTensorView to;
};

// The output of a product with K = 0: the bias, or zeros.
struct FillStep {
  MutableTensorView to;
  TensorView bias;
};

// to[columns] = the sums of the columns of a matrix, or += if `accumulate`.
struct SumStep {
  MatrixBatch from;
  std::int64_t rows = 0, columns = 0;
  MatrixBatch to;  // one row
  bool accumulate = false;
};

struct Steps {
  std::vector<CopyStep> copies;
  std::vector<FillStep> fills;
  std::vector<BatchedProduct> products;
  std::vector<SumStep> sums;
};

// Of the tensors of one call, whose strides decide how products repeat.
Steps steps_of(const Plan& plan, const LinearForwardTensors& tensors, void* workspace);
Steps steps_of(const Plan& plan, const LinearBackwardTensors& tensors, void* workspace);

}  // namespace fovea::linear

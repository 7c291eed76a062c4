// Batched matrix products by cuBLASLt, loaded while the program runs if the machine has it.
#pragma once

#include <cstdint>
#include <string>

#include "fovea/attention.h"

namespace fovea::cuda {

// `count` matrices of one shape, `apart` elements from one to the next (0: the same one again and again).
struct MatrixBatch {
  const void* data = nullptr;
  DType dtype = DType::fp32;
  std::int64_t row_stride = 0, apart = 0;
  bool transposed = false;  // the product takes the transpose of what lies in memory
};

// c[m, n] = alpha * a[m, k] b[k, n] + beta * c, `count` times, row-major. Sums are fp32, and fp32 is true fp32. a and b
// have one type; c has it too or is fp32. beta = 0 does not read c. Strides and pointers as they come; sizes of 1 or
// more, since the library takes no empty matrix.
struct BatchedProduct {
  std::int64_t count = 1, m = 0, n = 0, k = 0;
  float alpha = 1.0f;
  MatrixBatch a, b;
  float beta = 0.0f;
  MatrixBatch c;
};

// "no cuBLASLt: ..." if the machine has none or one that is too old; empty if products can be asked for. Asked once.
const std::string& missing_matrix_library();

// Enqueues on the stream, on the current device. The library keeps intermediate results in `workspace` only, whose
// first byte 256 divides; without one it takes an algorithm that has none. Products of one kind (sizes, types, strides,
// alignments, bytes of workspace) are computed by one algorithm. Throws Error if the library refuses or is missing.
void multiply(const BatchedProduct& product, void* stream, const Buffer& workspace);

}  // namespace fovea::cuda

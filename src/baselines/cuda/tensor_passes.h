// Small passes over tensors of any type and strides: copies, constants, and delta.
#pragma once

#include <cstdint>

#include "cuda/device/tensor_ref.h"

namespace fovea::cuda::baselines {

// For every row of [batch, heads, len, dim]: to = from, or += if `accumulate` (fp32 only). If from.data is null, to =
// value.
struct TensorCopy {
  std::int64_t rows = 0;
  int heads = 1, len = 0, dim = 0;
  ConstTensorRef from;
  TensorRef to;
  float value = 0.0f;
  bool accumulate = false;
};

// delta = rowsum(dout * out).
struct DeltaPass {
  std::int64_t rows = 0;
  int heads = 1, len = 0, dim = 0;
  ConstTensorRef out, dout;
  float* delta = nullptr;
};

constexpr int kTensorPassThreads = 256;  // one warp per row

const void* tensor_copy_kernel();
const void* delta_kernel();

}  // namespace fovea::cuda::baselines

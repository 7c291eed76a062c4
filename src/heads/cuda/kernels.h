// Parameters of the kernels of row passes, and the kernels' addresses.
#pragma once

#include <cstdint>

#include "cuda/device/tensor_ref.h"

namespace fovea::heads {

using cuda::ConstTensorRef;
using cuda::ElementKind;
using cuda::TensorRef;

// See Rotation in row_pass.h.
struct RotationParameters {
  std::int64_t first_column = 0, pairs = 0, first_position = 0;
  double log2_theta = 0;
  bool halves = false;
};

// A token is a batch element and a position. Rows without a weight are not normalised.
struct ForwardParameters {
  std::int64_t tokens = 0, len = 0, heads = 0, dim = 0;
  ConstTensorRef from;
  TensorRef to;
  ConstTensorRef weight;
  float epsilon = 0;
  RotationParameters rotation;
};
const void* forward_kernel();

// Rows that are rotated where they lie, forward (1) or back (-1). The rows begin at a multiple of 16 bytes, and so do
// the rotated columns and their second half. A thread block takes one position of `batches_each` sequences. It has at
// most 2^31 vectors of 16 bytes, and shared memory for the angles of a row.
struct RotateParameters {
  std::int64_t batches = 0, batches_each = 0, len = 0;
  unsigned heads = 0;
  TensorRef rows;
  RotationParameters rotation;
  float direction = 1.0f;
};
constexpr int kRotateThreads = 256;
const void* rotate_kernel(ElementKind kind, bool halves);

struct BackwardParameters {
  std::int64_t tokens = 0, len = 0, heads = 0, dim = 0;
  std::int64_t summed = 1;  // heads of dy that are added; then `heads` is 1
  ConstTensorRef x, dy;
  TensorRef dx;
  ConstTensorRef weight;
  float epsilon = 0;
  RotationParameters rotation;
  float* partial = nullptr;  // [thread blocks * warps, dim]
  bool accumulate = false;
};
const void* backward_kernel();

struct SumParameters {
  std::int64_t rows = 0, columns = 0;
  const float* partial = nullptr;
  TensorRef to;
  bool accumulate = false;
};
constexpr int kSumColumns = 32, kSumThreads = 1024;
const void* sum_kernel();  // a thread block per kSumColumns columns

}  // namespace fovea::heads

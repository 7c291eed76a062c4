// What the host hands to the softmax of short rows, and where its kernels are.
#pragma once

#include "baselines/cuda/row_passes.h"
#include "cuda/device/divisor.h"

namespace fovea::cuda::baselines {

// As RowMatrix, of less than 2^32 elements from head to head.
struct ShortMatrix {
  void* data;
  unsigned head, row;
};

// Step::softmax of rows of up to kShortRow scores, read for the last time, and 16-bit probabilities elsewhere. All rows
// of both start at multiples of four elements.
struct ShortSoftmax {
  unsigned rows, len_q;  // of rows less than 2^31
  Divisor by_len_q;
  int len_k, window_end;  // query i sees the keys before both, i + window_end and len_k
  float magnitude, sign;  // as RowPass has them
  ShortMatrix scores, to;
  ShortMatrix lse;  // of one element a row; data may be null
};

constexpr int kShortRow = 512;
constexpr int kShortRowThreads = 128;  // of a block, a warp for each row

const void* short_softmax_kernel(ElementKind to);

}  // namespace fovea::cuda::baselines

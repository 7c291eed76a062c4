// The arguments that passes over short rows share: the rows, and their places in a matrix.
#pragma once

#include "baselines/cuda/row_passes.h"
#include "cuda/device/fast_divmod.h"

namespace fovea::cuda::baselines {

// Like RowMatrix, with strides below 2^32 elements.
template <class Pointer>
struct BasicShortMatrix {
  Pointer data;
  unsigned head_stride, row_stride;
};
using ShortMatrix = BasicShortMatrix<void*>;
using ConstShortMatrix = BasicShortMatrix<const void*>;

// Rows of up to kShortRow columns that start at multiples of four elements.
struct ShortRows {
  unsigned count, len_q;  // less than 2^31
  FastDivmod len_q_divmod;
  int len_k, window_end;  // query i sees the keys before min(len_k, i + window_end)
};

constexpr int kShortRow = 512;
constexpr int kShortRowThreads = 128;  // per thread block; one warp per row

}  // namespace fovea::cuda::baselines

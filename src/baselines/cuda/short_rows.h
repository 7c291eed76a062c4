// What the host hands to passes over short rows: which rows, and where they lie in a matrix.
#pragma once

#include "baselines/cuda/row_passes.h"
#include "cuda/device/fast_divmod.h"

namespace fovea::cuda::baselines {

// As RowMatrix, of less than 2^32 elements from head to head.
struct ShortMatrix {
  void* data;
  unsigned head, row;
};

// Of up to kShortRow columns. All rows start at multiples of four elements.
struct ShortRows {
  unsigned count, len_q;  // less than 2^31
  FastDivmod by_len_q;
  int len_k, window_end;  // query i sees the keys before both, i + window_end and len_k
};

constexpr int kShortRow = 512;
constexpr int kShortRowThreads = 128;  // of a block, a warp for each row

}  // namespace fovea::cuda::baselines

// Tensor maps: what TMA must know about a tensor in global memory.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/device/tensor_ref.h"

namespace fovea::cuda::sm90 {

// A [batch, heads, len, dim] tensor of 16-bit elements, as the kernels' TMA coordinates (column, row, head, batch) see
// it. Boxes have 64 columns and `box_rows` rows, with the 128-byte swizzle.
struct TensorMapShape {
  std::int64_t dim, len, heads, batch;
  int box_rows;  // 1 to 256
};

// The same tensor as queries: its heads are groups of `group` heads, and the coordinates (column, head of a group, row,
// group, batch). Boxes have 64 columns, `box_heads` heads and `box_rows` rows. In shared memory the heads of a row
// follow one another.
struct QueryMapShape {
  std::int64_t dim, group, len, heads_kv, batch;
  int box_heads, box_rows;  // the product is 1 to 256
};

// Both: false if the driver has no tensor maps or refuses this one. Sizes are 1 to 2^32; `t` is aligned.
bool encode_tensor_map(CUtensorMap& map, const ConstTensorRef& t, const TensorMapShape& shape);
bool encode_query_map(CUtensorMap& map, const ConstTensorRef& t, const QueryMapShape& shape);

}  // namespace fovea::cuda::sm90

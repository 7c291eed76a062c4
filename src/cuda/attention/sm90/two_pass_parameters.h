// Kernel parameters of cuda.sm90's backward in two passes, for heads that are too wide for backward.cuh: one kernel
// makes dK and dV of a K/V tile, another makes dQ of a Q tile.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/attention/sm90/parameters.h"
#include "cuda/device/tensor_ref.h"

namespace fovea::cuda::sm90 {

constexpr int kTwoPassRows = 64;           // of a K/V tile, and of a streamed tile in both kernels
constexpr int kDqRows = 2 * kTwoPassRows;  // of the Q tile of dQ: 64 per warpgroup
constexpr std::int64_t kMaxTwoPassDim = 256;
constexpr int kTwoPassThreads = 3 * kWarpgroup;

// How the tiles of a kernel are launched. A section is `section` neighbouring sequences: first the first tiles of all
// of them, then all second ones.
struct TilesOfSequences {
  int tiles = 1;      // of a sequence
  int sequences = 1;  // (batch, key head) for dK and dV, (batch, query head) for dQ
  int section = 1;
  std::int64_t ctas() const { return std::int64_t{sequences} * tiles; }
};

struct TwoPassParameters {
  CUtensorMap q, dout, k, v;  // dimensions (column, row, head, batch); boxes of kTwoPassRows rows
  Shape shape;
  TilesOfSequences order;
  TensorRef dq, dk, dv;  // a gradient that is not wanted is null
  bool accumulate = false;
  bool lse_and_delta_ready = false;  // the kernel ahead has waited for lse and delta
  int query_tiles = 1;               // tiles of kTwoPassRows queries
  // [batch, heads_q, query_tiles, kTwoPassRows]. lse * log2(e), +inf where no key is visible or no query exists.
  const float* lse = nullptr;
  const float* delta = nullptr;
};

// Compiled kernels for some head dimensions; smaller ones are padded with zeros.
struct TwoPassInstance {
  const void *dkdv, *dq, *preprocess;
  int dim_qk, dim_v;
  int dkdv_shared_bytes, dq_shared_bytes;
};

}  // namespace fovea::cuda::sm90

// Kernel parameters of cuda.sm90, the compile-time tile of an instance, and the order of tiles.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/device/tensor_ref.h"

namespace fovea::cuda::sm90 {

constexpr int kWarpgroup = 128;     // threads
constexpr int kPanelColumns = 64;   // 16-bit columns of a panel in shared memory: rows of 128 bytes
constexpr int kWarpgroupRows = 64;  // rows that one warpgroup multiplies

// The tile of one kernel instance. `warpgroups` consumer warpgroups own 64 query rows each; one producer warp loads.
struct ForwardTile {
  int dim_qk, dim_v;  // columns in shared memory, multiples of 64; smaller head dimensions are padded with zeros
  int keys;           // of a K/V tile
  int warpgroups;
  int q_stages, kv_stages;
  bool chained;  // S of the next query tile is issued beside the last O of this one; wants two stages of Q
  bool turns;    // warpgroups take turns at issuing products, so that one multiplies while another exponentiates

  constexpr int rows() const { return kWarpgroupRows * warpgroups; }
  constexpr int threads() const { return kWarpgroup * (warpgroups + 1); }
  // Of a thread. Together with the producer's warpgroup they fill the registers of an SM.
  constexpr int consumer_registers() const { return warpgroups == 2 ? 240 : 160; }
  constexpr int producer_registers() const { return warpgroups == 2 ? 24 : 32; }
};

// How query tiles are dealt out. A section is `section_heads` neighbouring (batch, head), whose K and V stay in the L2
// cache together. In a section the last query rows of all heads come first, since a causal mask leaves them the most
// keys. Thread blocks take the next tile from `counter`, or every gridDim.x-th tile if it is null.
struct TileOrder {
  int q_tiles = 1;
  int sequences = 1;  // batch x query heads
  int section_heads = 1;
  int numbers = 0;              // tiles
  unsigned* counter = nullptr;  // 0 when the kernel starts
};

// Seconds of a thread block on a full chip.
struct ForwardTimes {
  double step;  // for a K/V tile
  double tile;  // for a query tile, beside its K/V tiles
};

// One compiled kernel.
struct ForwardInstance {
  const void* function;
  ForwardTile tile;
  ForwardTimes times;
  int shared_bytes;
};

struct ForwardParameters {
  CUtensorMap q, k, v;  // dimensions (column, row, head, batch)
  Shape shape;
  TileOrder order;
  TensorRef out, lse;  // lse.data may be null
};

}  // namespace fovea::cuda::sm90

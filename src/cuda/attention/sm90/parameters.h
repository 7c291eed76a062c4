// Kernel parameters of cuda.sm90, the compile-time tile of an instance, the rows and the order of tiles.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/attention/any/parameters.h"
#include "cuda/device/fast_divmod.h"
#include "cuda/device/tensor_ref.h"

namespace fovea::cuda::sm90 {

constexpr int kWarpgroup = 128;     // threads
constexpr int kPanelColumns = 64;   // 16-bit columns of a panel in shared memory: rows of 128 bytes
constexpr int kWarpgroupRows = 64;  // rows that one warpgroup multiplies
constexpr int kWarpRows = 16;       // of them, those of one warp
constexpr int kMaxCluster = 16;     // thread blocks; above 8, the portable size, resident_clusters() allows it

// The tile of one kernel instance. `warpgroups` consumer warpgroups own 64 query rows each; one producer warp loads.
struct ForwardTile {
  int dim_qk, dim_v;  // columns in shared memory, multiples of 64; smaller head dimensions are padded with zeros
  int keys;           // of a K/V tile
  int warpgroups;
  int q_stages, kv_stages;
  bool turns;       // warpgroups take turns at issuing MMAs (ping-pong): one multiplies, another makes exponentials
  bool stages_out;  // there is shared memory for a tile of results, which TMA stores

  constexpr int rows() const { return kWarpgroupRows * warpgroups; }
  constexpr int threads() const { return kWarpgroup * (warpgroups + 1); }
  // Registers of a thread, set by setmaxnreg: consumers and the producer's warpgroup together fill those of an SM. Not
  // for one consumer warpgroup: its threads may have 255 without setmaxnreg.
  constexpr int consumer_registers() const { return warpgroups == 2 ? 240 : 160; }
  constexpr int producer_registers() const { return warpgroups == 2 ? 24 : 32; }
};

// The rows of a query tile: `queries` positions of `heads` query heads, which read one key head. Row r is position
// r / heads of head r % heads. Rows from queries x heads on are not used.
struct RowPacking {
  int heads = 1;  // 1, or all heads of a key head's group
  int queries = kWarpgroupRows;
  FastDivmod heads_divmod = fast_divmod(1);
};

// The order in which thread blocks take query tiles (the tile scheduler). A sequence is a (batch, query head) pair;
// packed heads count as one. A section is `section_sequences` neighbouring sequences, whose K and V stay in the L2
// cache together. In a section the last query rows of all sequences come first, since a causal mask leaves them the
// most keys. The splits of a tile have neighbouring numbers. A thread block takes its next number from `counter`, or
// every gridDim.x-th number if it is null.
struct TileOrder {
  int q_tiles = 1;
  int sequences = 1;
  int section_sequences = 1;
  int numbers = 0;              // tiles x splits
  bool prefetches = false;      // the producer prefetches its next tile into the L2 cache; only without a counter
  unsigned* counter = nullptr;  // 0 when the kernel starts
};

// Seconds of a thread block on a full chip.
struct ForwardTimes {
  double step;    // for a K/V tile
  double tile;    // for a query tile, beside its K/V tiles
  double uneven;  // added for a query tile, if query tiles visit different numbers of K/V tiles
};

// One compiled kernel.
struct ForwardInstance {
  const void* function;
  ForwardTile tile;
  ForwardTimes times;
  int shared_bytes;
};

struct ForwardParameters {
  CUtensorMap q;        // dimensions (column, head of a group, row, key head, batch)
  CUtensorMap k, v;     // dimensions (column, row, head, batch)
  CUtensorMap out_map;  // as k; if tma_out
  Shape shape;
  RowPacking packing;
  any::Split split;
  TileOrder order;
  bool kv_read_once = false;  // K and V lines are the first to leave the L2 cache
  TensorRef out, lse;         // lse.data may be null
  bool tma_out = false;       // results go through shared memory
  // If splits combine in memory, `out` is [splits, batch, heads_q, len_q, dim_v] in the workspace: fp32, not divided by
  // the sum. A split's partials start `split_stride` elements after those of the split before. States are [splits,
  // batch, heads_q, len_q]. Splits that see no key write neither.
  any::PartialState* partial_state = nullptr;
  std::int64_t split_stride = 0;
};

}  // namespace fovea::cuda::sm90

// The constants of estimate.h for one chip. Times are in cycles and rates per cycle and SM, unless a comment names
// another unit.
#pragma once

namespace fovea::cuda::any {

// Costs of the tiles that multiply in the same way.
struct TileCosts {
  double rate;     // multiply-adds
  double chain;    // the dependent chain of one product, with its part of softmax and barriers
  double softmax;  // exponentials and rescaling, in equivalent MMA columns
  double alone;    // a thread block alone on an SM is as slow as if so many shared it; unused if only one fits
};
struct MmaTiles {
  TileCosts few_rows;             // with split_warps; forward only
  TileCosts one_tile, two_tiles;  // with one or two 16-row MMA tiles per warp
  TileCosts wgmma;
};
struct FmaTiles {
  TileCosts few_rows;    // with split_warps; forward only
  TileCosts few_warps;   // with fewer than four warps
  TileCosts wide_lanes;  // with 8 x 8 scores per thread
  TileCosts others;
};

struct KernelCosts {
  double start;        // the launch, and in backward the preprocess kernel
  double prologue;     // of a thread block: all but its rows, its streamed tiles and its splits
  double row_rate;     // bytes of a thread block's own rows
  double stream_rate;  // bytes of streamed tiles
  double idle;         // of a thread block that sees nothing
  // Under a mask the neighbours of the longest thread block on its SM end earlier. 0: it then gets their part of the
  // SM; 1: it runs on as slowly as before.
  double short_neighbours;
  // Equally long thread blocks take a time between two bounds. 0: whole waves; 1: the work divided evenly.
  double smooth_waves;
  // Under a mask: the time from the end of the evenly divided work to the end of the last thread block, in lengths of
  // the longest one. With up to two splits, with more, and with splits in a cluster.
  double tail_few_splits, tail_many_splits, tail_clusters;
  // Splits through memory.
  double store_rate;  // bytes of partials that are written, and read again to combine them
  double combine;     // the launch of the kernel that combines, for each of Workload::results
  double per_split;   // splits of a row are read one after the other; for each result
  // Splits in a cluster; both for each result.
  double barriers, barriers_per_split;
  double cluster_rate;  // bytes that are combined through distributed shared memory
};

// The two gradient kernels of a call, which run concurrently from sm_90 on.
struct PairCosts {
  double start;    // as KernelCosts::start, of both
  double combine;  // the launch of the kernel that combines the splits of both
  double overlap;  // factor of the sum of both kernels' evenly divided work
  // The next two count if both kernels do not fit the chip at once.
  double tail_of_dq;    // under a mask: as the tails of KernelCosts, in longest thread blocks for dQ
  double smooth_waves;  // without a mask: as KernelCosts::smooth_waves
  double unequal_rows;  // slow-down if the two kernels' tiles differ in rows: they wait for each other's SMs
};

template <class Tiles>
struct KernelSpec {
  Tiles tiles;
  KernelCosts costs;
};
// For elements of one width: 16 bits, or fp32.
template <class Tiles>
struct WidthSpec {
  KernelSpec<Tiles> forward, dkdv, dq;
  PairCosts pair;
};

struct ArchSpec {
  const char* chip;
  double clock_hz;        // of the SMs under load
  double launch_seconds;  // seconds that the host takes to launch one kernel more
  double memory_rate;     // bytes per cycle that memory takes from the whole chip
  WidthSpec<MmaTiles> bits16;
  WidthSpec<FmaTiles> fp32;
};

// The H200's, the only chip that was measured, for every device.
const ArchSpec& arch_spec(int device);

}  // namespace fovea::cuda::any

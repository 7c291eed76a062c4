// The constants of estimate.h, one row per chip. Times are in cycles, rates per cycle and SM.
#pragma once

namespace fovea::cuda::any {

// Costs of the tiles that multiply in the same way.
struct TileCosts {
  double rate;     // multiply-adds
  double chain;    // the dependent chain of one product, with its part of softmax and barriers
  double softmax;  // exponentials and rescaling, in equivalent MMA columns
  double alone;    // a thread block alone on an SM with room for more is as slow as if so many shared the SM
};
struct MmaTiles {
  TileCosts few_rows;             // with split_warps
  TileCosts one_tile, two_tiles;  // with one or two 16-row MMA tiles per warp
  TileCosts wgmma;
};
struct FmaTiles {
  TileCosts few_rows;    // with split_warps
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
  // Weight of the work that a thread block's neighbours lack under a mask: 0 if it runs faster when they have ended.
  double short_neighbours;
  // The time of a partial last wave lies between two bounds; this is the weight of the lower one, an even share.
  double smooth_waves;
  // Under a mask: from the end of an even share to the end of the last thread block, in longest thread blocks. With up
  // to two splits, with more, and with splits in a cluster.
  double tail_few_splits, tail_many_splits, tail_clusters;
  // Splits through memory.
  double store_rate;  // bytes of partials, as a thread block writes them and as the combine reads them
  double combine;     // the launch of the kernel that combines
  double per_split;   // a row reads its splits one after the other
  // Splits in a cluster.
  double barriers, barriers_per_split;
  double cluster_rate;  // bytes that are combined through distributed shared memory
};

// The two gradient kernels of a call, which run concurrently from sm_90 on.
struct PairCosts {
  double start;    // as KernelCosts::start, of both
  double combine;  // the launch of the kernel that combines the splits of both
  double overlap;  // the sum of their even shares counts so much
  // Where both do not fit the chip at once: under a mask, the last thread block of dQ has so much of its time to go
  // when the even shares end; without one, the weight of the even shares beside whole waves.
  double tail_of_dq, smooth_waves;
  double unequal_rows;  // slow-down if the two kernels' tiles differ in rows: they wait for each other's SMs
};

template <class Tiles>
struct KernelSpec {
  Tiles tiles;
  KernelCosts costs;
};
template <class Tiles>
struct WidthSpec {
  KernelSpec<Tiles> forward, dkdv, dq;
  PairCosts pair;
};

struct ArchSpec {
  const char* chip;
  double clock_hz;        // of the SMs under load
  double launch_seconds;  // that the host takes to launch one kernel more
  double memory_rate;     // bytes that memory takes per cycle
  WidthSpec<MmaTiles> bits16;
  WidthSpec<FmaTiles> fp32;
};

// The H200's, the only chip that was measured, for every device.
const ArchSpec& arch_spec(int device);

}  // namespace fovea::cuda::any

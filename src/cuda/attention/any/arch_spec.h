// The constants of estimate.h for one chip. Times are in cycles and rates per cycle and SM, unless a comment names
// another unit.
#pragma once

namespace fovea::cuda::any {

// Costs of the tiles that multiply in the same way. `alone` is unused if only one CTA fits.
struct TileCosts {
  double rate;     // multiply-adds
  double chain;    // the dependent chain of one product, with its part of softmax and barriers
  double softmax;  // exponentials and rescaling, in equivalent MMA columns
  double alone;    // effective number of resident CTAs when there is only one, which cannot hide its latency
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
  double prologue;     // of a CTA: everything but loading its own rows, its streamed tiles and its splits
  double row_rate;     // bytes of a thread block's own rows
  double stream_rate;  // bytes of streamed tiles
  double idle;         // of a CTA without visible pairs
  // Under a mask, the other CTAs on the longest CTA's SM finish earlier. 0: the longest then speeds up; 1: it does not.
  double short_neighbours;
  // The time of equally long CTAs is between two bounds. 0: whole waves; 1: the work divided evenly over the slots.
  double smooth_waves;
  // Under a mask, the tail of the schedule: from when evenly divided work would end until the last CTA ends, in
  // durations of the longest CTA. With up to two splits, with more, and with splits in a cluster.
  double tail_few_splits, tail_many_splits, tail_clusters;
  // Splits through memory.
  double store_rate;  // bytes of partials that are written, and read again to combine them
  double combine;     // the launch of the combine kernel, for each of Workload::results
  double per_split;   // splits of a row are read one after the other; for each result
  // Splits in a cluster; both for each result.
  double barriers, barriers_per_split;
  double cluster_rate;  // bytes that are combined through distributed shared memory
};

// The two gradient kernels of a call, which run concurrently from sm_90 on.
struct PairCosts {
  double start;    // as KernelCosts::start, of both
  double combine;  // the launch of the combine kernel of both
  double overlap;  // time of both kernels' work divided evenly, relative to the sum of their own such times
  // The next two apply if the CTAs of both kernels do not fit the chip at once.
  double tail_of_dq;    // under a mask: tail of the schedule, in durations of dQ's longest CTA
  double smooth_waves;  // without a mask: as KernelCosts::smooth_waves
  double unequal_rows;  // slow-down if the two kernels' tiles differ in rows
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

// Fitted to measured times: bits16, fp32 and wgmma_in_sequence.
struct ArchSpec {
  const char* chip;
  double clock_hz;        // of the SMs under load
  double launch_seconds;  // host time of launching one more kernel
  double memory_rate;     // bytes per cycle that the whole chip writes to memory
  // Gradients whose splits go through memory need one kernel more. The sweeps repeat calls in graphs, where its launch
  // is hidden, so such a pair must be predicted this much faster.
  double weight_of_one_more_kernel;
  // How much longer kernels with wgmma take in calls one after another than alone, as in the sweeps. Other kernels take
  // the same time in both.
  double wgmma_in_sequence;
  WidthSpec<MmaTiles> bits16;
  WidthSpec<FmaTiles> fp32;
};

// The H200's, the only chip that was measured, for every device.
const ArchSpec& arch_spec(int device);

}  // namespace fovea::cuda::any

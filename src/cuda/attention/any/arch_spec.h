// The constants of estimate.h, one row per chip.
#pragma once

namespace fovea::cuda::any {

// Multiply-adds per cycle and SM, by the shape of the tile.
struct MmaRates {
  double split_warps;          // tiles with split_warps
  double one_tile, two_tiles;  // tiles with one or two 16-row MMA tiles per warp
};
struct FmaRates {
  double split_warps;
  double few_warps;   // fewer than four
  double wide_lanes;  // 8 x 8 scores per thread
  double others;
};

// Costs that depend on the MMA policy, in cycles unless a comment says otherwise.
struct TileCosts {
  double rate;      // multiply-adds per cycle and SM; 0: MmaRates or FmaRates has it
  double prologue;  // the launch, and the work of a thread block before its first product
  double chain;     // the dependent chain of one product, with its part of softmax and barriers
  double alone;     // time of a thread block alone on its SM, divided by its time on a full SM
  double softmax;   // exponentials and rescaling, in equivalent MMA columns
  // Splits in a cluster.
  double cluster_barriers;
  double cluster_rate;   // bytes per cycle and SM that are combined through distributed shared memory
  double cluster_chain;  // as `chain`
  double cluster_alone;  // as `alone`, where a full SM holds two thread blocks
  double cluster_speed;  // speed-up of a forward kernel whose warps own 16 rows, since many fit an SM
  // Clusters in several waves: weights of the products, of the work that a split does once, and of the longest split.
  double wave_products, wave_once, wave_tail;
};

// Costs of combining splits.
struct SplitCosts {
  double launch;         // of the kernel that combines
  double per_split;      // a row reads its splits one after the other
  double store_rate;     // bytes per cycle and SM
  double chain;          // as TileCosts::chain, for tiles with split_warps
  double cluster_split;  // cycles that each split adds to the barriers of a cluster
  double cluster_short;  // fraction of the time after a short split's end in which its SM gets no faster
  // Time of the last wave beyond an even share, in units of the longest split.
  double tail_few_splits;   // up to two splits
  double tail_many_splits;  // more than two
};

// The two gradient kernels of fp32, which run concurrently.
struct PairCosts {
  double preprocess;       // the part that loading the first tiles does not hide
  double prologue;         // from a free SM to the first product, and from the last product to the end
  double rate, wide_rate;  // multiply-adds per cycle and SM; with 8 x 8 scores per thread
  double alone;            // a thread block alone on an SM with room for more is as slow as if this many shared it
  double chain;            // the dependent chain of one product
  double store_rate;       // bytes per cycle and SM
  double combine;          // the launch of the kernel that combines
  double combine_rate;     // bytes per cycle and SM that it reads
  double cluster_combine;  // per gradient
  double cluster_rate;     // as TileCosts::cluster_rate
  double tail_of_dq;       // from the end of the last full wave to the end of the last split, in splits of dQ,
  double tail_of_dkdv;     // and in splits of dK and dV
  double masked_wave;      // waves that a mask saves, since some splits are short
  double unequal_rows;     // slow-down if the two kernels' tiles differ in rows: they wait for each other's SMs
};

struct ArchSpec {
  const char* chip;
  double clock_hz;  // of the SMs under load
  MmaRates mma;
  FmaRates fma;
  TileCosts mma_sync, forward_wgmma, dkdv_wgmma, dq_wgmma;
  SplitCosts split;
  PairCosts pair;
};

// The row of the device's chip, or of the nearest chip that was measured.
const ArchSpec& arch_spec(int device);

}  // namespace fovea::cuda::any

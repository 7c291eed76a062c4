// The constants of estimate.h, one row per chip.
#pragma once

namespace fovea::cuda::any {

// Multiply-add operations of one SM in a cycle, by the shape of the tile.
struct MmaRates {
  double shared_rows;          // tiles with split_warps
  double one_tile, two_tiles;  // 16-row tiles of a warp
};
struct FmaRates {
  double shared_rows;
  double few_warps;   // less than four
  double wide_lanes;  // 8 x 8 scores per thread
  double others;
};

// What depends on how a tile multiplies. Cycles, unless it says otherwise.
struct TileCosts {
  double rate;      // multiply-add operations of one SM in a cycle; 0: by MmaRates or FmaRates
  double begin;     // the launch, and what a thread block does before its first product
  double shortest;  // the dependent chain of one product of a K/V tile, its share of softmax and barriers
  double alone;     // the time of a thread block that has an SM to itself, of one that shares it
  double softmax;   // exponentials and rescaling, in equivalent MMA columns
  // Where the splits of a tile are a cluster.
  double cluster_barriers;
  double cluster_rate;  // bytes of one SM in a cycle that are combined through distributed shared memory
  double cluster_shortest, cluster_alone;
  double cluster_speed;  // of warps with 16 rows in forward, of which many are resident
  // Clusters in several waves: shares of all products, of what the thread blocks do besides, of the longest split.
  double wave_products, wave_once, wave_tail;
};

// Splits that are combined through memory, and what all tiles have in common.
struct SplitCosts {
  double launch;                        // of the kernel that combines
  double per_split;                     // a row reads its splits one after the other
  double store_rate;                    // bytes of one SM in a cycle
  double shared_rows;                   // the chain of one product in tiles with split_warps
  double cluster_split;                 // what each split adds to the barriers of a cluster
  double cluster_short;                 // of the room that short splits leave, the share that counts
  double tail_of_rows, tail_of_splits;  // of the longest split, that the last wave waits for
};

// The two gradient kernels of fp32, which run concurrently.
struct PairCosts {
  double preprocess;       // where loading the first tiles does not hide it
  double begin;            // from a free SM to the first product, and from the last to the end
  double rate, wide_rate;  // multiply-add operations of one SM in a cycle
  double alone;       // a thread block that could have a neighbour and has none is as slow as if so many shared its SM
  double shortest;    // the dependent chain of one product
  double store_rate;  // bytes of one SM in a cycle
  double combine;     // the launch of the kernel that combines
  double combine_rate;     // bytes of one SM in a cycle that it reads
  double cluster_combine;  // of one result
  double cluster_rate;
  double tail_of_dq, tail_of_dkdv;  // of a split: how long after the chip was full the last one ends
  double masked_wave;               // of a wave of splits under a mask, where some are no whole split
  double unlike;                    // thread blocks of different sizes wait for each other's SMs
};

struct ArchSpec {
  const char* chip;
  double clock_hz;  // of an SM under load
  MmaRates mma;
  FmaRates fma;
  TileCosts mma_sync, forward_wgmma, dkdv_wgmma, dq_wgmma;
  SplitCosts split;
  PairCosts pair;
};

// The row of the device's chip; of the nearest one that was measured if it was not.
const ArchSpec& arch_spec(int device);

}  // namespace fovea::cuda::any

// The constants of the three time models for one chip: of estimate.cpp, backward_estimate.cpp and
// two_pass_estimate.cpp. Times are in seconds. What a tile takes stands beside the tiles, in tiles.h and
// backward_times.h.
#pragma once

namespace fovea::cuda::sm90 {

struct ForwardCosts {
  double launch;         // up to the first product, and the end of the grid
  double counter_reset;  // a memset ahead of the kernel
  double tail;           // share of the longest tile's time in which the last thread block runs alone
  // Bytes per second that n thread blocks read: memory_rate * n / (n + half_rate_ctas), at most cta_memory_rate each;
  // in clusters the share `cluster_memory` of it.
  double memory_rate, half_rate_ctas, cta_memory_rate, cluster_memory;
  double combine;           // launch of the combine, and its first reads, of cold memory
  double combine_column;    // per column and split: a warp combines a row split by split
  double cluster_barriers;  // both barriers of a cluster
  double cluster_rate;      // bytes of results per second that a thread block gives to its cluster
  double no_keys;           // of a split without keys
  // Without splits in memory, the others are fitted to hot calls. A call that finds nothing in the caches takes longer:
  // by `cold`, and in clusters by the factor `cold_cluster` besides.
  double cold, cold_cluster;
};

struct BackwardCosts {
  double launches;     // of both kernels, up to the first product, and the end of the grid
  double memory_rate;  // bytes per second of the preprocess
  double tail;         // share of the longest thread block's time in which the last ones run alone
  double turn;         // from one key tile's addition to a query tile until the next one's
  // Factor of a step's time with `ascending` and no mask: then key tiles follow one another through the query tiles,
  // each waiting for the one before.
  double equal_tiles;
  // Of splits, per column of a thread block's dK: writing partials of dK and dV, and the launch that combines them. All
  // partials, written and then read, move at `partial_rate` bytes per second.
  double split_column, partial_rate;
};

struct TwoPassCosts {
  double launches;      // of all kernels, up to the first product, and the end of the last grid
  double memory_rate;   // bytes per second of the preprocess
  double tail;          // share of the longest thread block's time in which the last ones run alone
  double product_rate;  // multiply-adds per second of an SM
  double step;          // of a step, beside its products
  double column;        // of a thread block, per column of K and V, beside its steps
};

struct ArchSpec {
  ForwardCosts forward;
  BackwardCosts backward;
  TwoPassCosts two_pass;
};

// One H200, the only chip that was measured; every device uses its row. All constants are fitted:
// - forward to preset h200-dense, as the tiles' own times are, and to calls with splits; the runs are in
//   docs/kernels/sm90_forward_notebook.md: steps 2, 5 and 6, "predicted times of cold calls", and for the rates of
//   memory "reading alone".
// - backward to the calls that backward_times.h names. The rate of the preprocess is fitted to 19 later calls of the
//   same file: the first 2,308 ran with a slower preprocess. Today's reads 3.1e12 bytes per second, here and in
//   cuda.any. The rates stay until both are timed anew, since cuda.any's times hold the slower one too. The costs of
//   splits are fitted to calls that were timed when there were splits (docs/kernels/sm90_backward_notebook.md, step 7).
// - two_pass to the 964 calls of more than 128 columns that both implementations took in
//   results/h200/hopper_sweep.csv.xz.
inline constexpr ArchSpec kH200{.forward = {.launch = 3.0e-6,
                                            .counter_reset = 1.5e-6,
                                            .tail = 0.15,
                                            .memory_rate = 4.9e12,
                                            .half_rate_ctas = 10,
                                            .cta_memory_rate = 1.25e11,
                                            .cluster_memory = 0.92,
                                            .combine = 8.8e-6,
                                            .combine_column = 4.1e-9,
                                            .cluster_barriers = 1.0e-6,
                                            .cluster_rate = 2.0e10,
                                            .no_keys = 0.5e-6,
                                            .cold = 4.3e-6,
                                            .cold_cluster = 1.05},
                                .backward = {.launches = 4.0e-6,
                                             .memory_rate = 1.5e12,
                                             .tail = 0.42,
                                             .turn = 1.57e-6,
                                             .equal_tiles = 1.13,
                                             .split_column = 58e-9,
                                             .partial_rate = 3.0e12},
                                .two_pass = {.launches = 2.0e-6,
                                             .memory_rate = 2.05e12,
                                             .tail = 0.35,
                                             .product_rate = 3.86e12,
                                             .step = 0.29e-6,
                                             .column = 13.5e-9}};

}  // namespace fovea::cuda::sm90

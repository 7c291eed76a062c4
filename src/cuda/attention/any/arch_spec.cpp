// One ArchSpec per measured chip. Every number was fitted to times of overridden plans; the comment before a group
// names the sweep (docs/kernels/cuda_any.md). Other chips use the numbers of H200: tests/cuda/tile_sweep.cpp measures
// what an ArchSpec of their own needs.
#include "cuda/attention/any/arch_spec.h"

namespace fovea::cuda::any {
namespace {

constexpr ArchSpec kH200{
    .chip = "H200",
    // Chosen so that the median prediction for full grids is right (forward of results/h200/h200-dense.jsonl).
    .clock_hz = 1.755e9,
    // Measured in full grids.
    .mma = {.split_warps = 270, .one_tile = 580, .two_tiles = 810},
    .fma = {.split_warps = 46, .few_warps = 66, .wide_lanes = 82, .others = 79},
    // Splits through memory: 180 problems. Clusters: 65 bf16 problems, sweep of 2026-11-22.
    .mma_sync = {.rate = 0,
                 .prologue = 5400,
                 .chain = 930,
                 .alone = 0.61,
                 .softmax = 0,
                 .cluster_barriers = 2430,
                 .cluster_rate = 16.8,
                 .cluster_chain = 435,
                 .cluster_alone = 0.87,
                 .cluster_speed = 1.18,
                 .wave_products = 0.85,
                 .wave_once = 0.98,
                 .wave_tail = 0.19},
    // 53 problems of one to 128 heads.
    .forward_wgmma = {.rate = 1410,
                      .prologue = 4320,
                      .chain = 770,
                      .alone = 0.61,
                      .softmax = 37,
                      .cluster_barriers = 1070,
                      .cluster_rate = 17.9,
                      .cluster_chain = 560,
                      .cluster_alone = 1.06,
                      .cluster_speed = 0.92,
                      .wave_products = 0.55,
                      .wave_once = 1.26,
                      .wave_tail = 0.16},
    // 37 problems of one to 512 heads. Fitted to choose well more than to predict times, which are a fifth too short.
    .dkdv_wgmma = {.rate = 1384,
                   .prologue = 3520,
                   .chain = 321,
                   .alone = 0.83,
                   .softmax = 22.6,
                   .cluster_barriers = 1467,
                   .cluster_rate = 18.2,
                   .cluster_chain = 540,
                   .cluster_alone = 0.27,
                   .cluster_speed = 1,
                   .wave_products = 0.71,
                   .wave_once = 1.54,
                   .wave_tail = 0.065},
    .dq_wgmma = {.rate = 2158,
                 .prologue = 5512,
                 .chain = 496,
                 .alone = 0.53,
                 .softmax = 32.6,
                 .cluster_barriers = 1928,
                 .cluster_rate = 12.7,
                 .cluster_chain = 492,
                 .cluster_alone = 0.96,
                 .cluster_speed = 1,
                 .wave_products = 0.72,
                 .wave_once = 1.08,
                 .wave_tail = 0.095},
    // The sweeps of mma_sync.
    .split = {.launch = 4500,
              .per_split = 430,
              .store_rate = 23,
              .chain = 830,
              .cluster_split = 86,
              .cluster_short = 0.51,
              .tail_few_splits = 0.03,
              .tail_many_splits = 0.53},
    // About 3,000 pairs of 20 problems, sweep of 2026-11-22.
    .pair = {.preprocess = 550,
             .prologue = 11300,
             .rate = 81,
             .wide_rate = 83,
             .alone = 1.64,
             .chain = 1790,
             .store_rate = 8.2,
             .combine = 6400,
             .combine_rate = 7.5,
             .cluster_combine = 970,
             .cluster_rate = 19.6,
             .tail_of_dq = 0.29,
             .tail_of_dkdv = 0.09,
             .masked_wave = 0.25,
             .unequal_rows = 1.6}};

}  // namespace

const ArchSpec& arch_spec(int) { return kH200; }

}  // namespace fovea::cuda::any

// Shared memory of the forward kernel: a ring of Q tiles, one of K tiles and one of V tiles, each with a pair of
// mbarriers per stage, and a tile of results. Tiles are panels of 64 columns with the 128-byte swizzle, as TMA and
// wgmma have them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/attention/sm90/parameters.h"
#include "cuda/attention/sm90/work.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace fovea::cuda::sm90 {

// `full`: the producer's one arrival, and the bytes of TMA. `empty`: an arrival of every consumer warp, which is done
// with the stage.
template <int kStages>
struct StageBarriers {
  std::uint64_t full[kStages], empty[kStages];
};

template <class Tile>
struct ForwardShared {
  static constexpr ForwardTile kTile = Tile::kTile;
  static constexpr int kQBytes = kTile.rows() * kTile.dim_qk * 2;
  static constexpr int kKBytes = kTile.keys * kTile.dim_qk * 2, kVBytes = kTile.keys * kTile.dim_v * 2;
  alignas(1024) std::byte q[kTile.q_stages][kQBytes];
  std::byte k[kTile.kv_stages][kKBytes];
  std::byte v[kTile.kv_stages][kVBytes];
  static constexpr int kStageBytes = kTile.q_stages * kQBytes + kTile.kv_stages * (kKBytes + kVBytes);
  static constexpr int kOutBytes = kTile.stages_out ? kTile.rows() * kTile.dim_v * 2 : 16;
  std::byte out[kOutBytes];                            // for each warp its 16 rows, panel by panel
  alignas(16) any::PartialState states[kTile.rows()];  // of a split in a cluster
  StageBarriers<kTile.q_stages> q_barriers;
  StageBarriers<kTile.kv_stages> k_barriers, v_barriers;
  // The ring of query tiles that the producer publishes; and for each consumer warp its copy of the current one.
  static constexpr int kTileStages = 4;
  StageBarriers<kTileStages> tile_barriers;
  QueryTile tiles[kTileStages];
  QueryTile current[kTile.warpgroups * 4];
};

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// One thread. Every consumer warp arrives once at an `empty` barrier.
template <int kStages>
__device__ __forceinline__ void init_barriers(StageBarriers<kStages>& barriers, int consumer_warps) {
  for (int i = 0; i < kStages; ++i) {
    ptx::mbarrier_init(shared_address(&barriers.full[i]), 1);
    ptx::mbarrier_init(shared_address(&barriers.empty[i]), consumer_warps);
  }
}

// A position in a ring of stages. phase() is the parity of the barriers' phase: 0 at the first use of a stage, then 1,
// then 0 again. The producer keeps a position, and so does every consumer thread. It is one number, since consumers
// have no register to spare.
template <int kStages>
struct RingPosition {
  static_assert(kStages >= 1 && kStages <= 4);
  unsigned uses = 0;
  __device__ __forceinline__ unsigned stage() const { return uses % kStages; }
  __device__ __forceinline__ unsigned phase() const { return uses / kStages % 2; }
  __device__ __forceinline__ void advance() { ++uses; }
  __device__ __forceinline__ RingPosition after() const { return {uses + 1}; }
};

// Consumers wait until the stage's copies have arrived.
template <int kStages>
__device__ __forceinline__ void wait_full(const StageBarriers<kStages>& barriers, const RingPosition<kStages>& at) {
  ptx::mbarrier_wait(shared_address(&barriers.full[at.stage()]), at.phase());
}

// The producer waits until the consumers are done with the stage's former tile. At a stage's first use it does not
// wait: parity 1 of a new barrier is over at once.
template <int kStages>
__device__ __forceinline__ void wait_empty(const StageBarriers<kStages>& barriers, const RingPosition<kStages>& at) {
  ptx::mbarrier_wait(shared_address(&barriers.empty[at.stage()]), at.phase() ^ 1);
}

// One lane of each consumer warp says that the warp is done with the stage. All lanes have passed a wait, for wgmma or
// at __syncwarp, since their last read of it.
template <int kStages>
__device__ __forceinline__ void release(const StageBarriers<kStages>& barriers, const RingPosition<kStages>& at,
                                        bool first_lane) {
  if (first_lane) ptx::mbarrier_arrive(shared_address(&barriers.empty[at.stage()]));
}

// One arrival for the warp, after all its lanes have come here. Unlike release(), it synchronizes the warp itself.
__device__ __forceinline__ void arrive_warp(const std::uint64_t& barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared_address(&barrier));
}

}  // namespace fovea::cuda::sm90

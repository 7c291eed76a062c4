// Shared memory of the backward kernel. Tiles are panels of 64 columns with the 128-byte swizzle. dS is transposed: its
// rows are keys, its panels 64 queries.
#pragma once

#include "cuda/attention/sm90/backward_parameters.h"
#include "cuda/attention/sm90/shared.cuh"

namespace fovea::cuda::sm90 {

// The compile-time choices of an instance.
template <class Element_, int kDim_>
struct BackwardTile {
  using Element = Element_;
  static constexpr int kDim = kDim_, kPanels = kDim / kPanelColumns;
  static constexpr int kQueries = kDim == 64 ? 128 : 64;
  static constexpr int kStages = 2;  // of Q and dO
};

constexpr int kDsSlots = 2, kTurnSlots = 2;

template <class Tile>
struct BackwardShared {
  static constexpr int kStages = Tile::kStages, kQueries = Tile::kQueries, kRowBytes = Tile::kDim * 2;
  alignas(1024) std::byte k[kKeys * kRowBytes];
  std::byte v[kKeys * kRowBytes];
  std::byte q[kStages][kQueries * kRowBytes];
  std::byte dout[kStages][kQueries * kRowBytes];
  std::byte ds[kDsSlots][kKeys * kQueries * 2];
  alignas(128) float lse[kStages][kQueries];
  float delta[kStages][kQueries];
  StageBarriers<kStages> q_barriers;  // of Q with lse; `empty`: both key warpgroups are done with Q, dO, lse and delta
  std::uint64_t dout_full[kStages];   // of dO with delta
  // Of dS. `full`: both key warpgroups have stored their keys' part. `empty`: both have read all of it.
  StageBarriers<kDsSlots> ds_barriers;
  // Turns to add to dQ, for each half. turn_ready: the key warpgroup may add. `full`: it has added. `empty`: the
  // counter was raised, or need not be (the last key tile).
  std::uint64_t turn_ready[kKeyWarpgroups][kTurnSlots];
  StageBarriers<kTurnSlots> turn_barriers[kKeyWarpgroups];
};

// One thread.
template <class Tile>
__device__ __forceinline__ void init_backward_barriers(BackwardShared<Tile>& shared) {
  constexpr int kKeyWarps = 4 * kKeyWarpgroups;
  init_barriers(shared.q_barriers, kKeyWarps);
  for (std::uint64_t& barrier : shared.dout_full) ptx::mbarrier_init(shared_address(&barrier), 1);
  for (int i = 0; i < kDsSlots; ++i) {
    ptx::mbarrier_init(shared_address(&shared.ds_barriers.full[i]), kKeyWarps);
    ptx::mbarrier_init(shared_address(&shared.ds_barriers.empty[i]), kKeyWarps);
  }
  for (int half = 0; half < kKeyWarpgroups; ++half) {
    for (int i = 0; i < kTurnSlots; ++i) {
      ptx::mbarrier_init(shared_address(&shared.turn_ready[half][i]), 1);
      ptx::mbarrier_init(shared_address(&shared.turn_barriers[half].full[i]), 4);
      ptx::mbarrier_init(shared_address(&shared.turn_barriers[half].empty[i]), 1);
    }
  }
  ptx::fence_mbarrier_init();
}

}  // namespace fovea::cuda::sm90

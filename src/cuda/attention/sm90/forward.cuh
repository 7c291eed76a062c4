// Forward on Hopper. Thread blocks are persistent, except in clusters, which have one query tile each. One producer
// warp loads tiles by TMA, one to three consumer warpgroups multiply them by wgmma, with the online softmax of
// FlashAttention-2 (Dao, arXiv 2307.08691, algorithm 1) and the overlap of FlashAttention-3 (Shah et al., arXiv
// 2407.08608). Schedule: docs/kernels/sm90_forward.md.
#pragma once

#include "cuda/attention/sm90/forward_consumer.cuh"
#include "cuda/attention/sm90/forward_producer.cuh"

namespace fovea::cuda::sm90 {

template <class Tile>
__device__ __forceinline__ void init_all_barriers(ForwardShared<Tile>& shared) {
  constexpr int kWarps = Tile::kTile.warpgroups * 4;
  if (threadIdx.x == 0) {
    init_barriers(shared.q_barriers, kWarps);
    init_barriers(shared.k_barriers, kWarps);
    init_barriers(shared.v_barriers, kWarps);
    init_barriers(shared.tile_barriers, kWarps);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
}

template <class Element, class Tile>
__global__ void __launch_bounds__(Tile::kTile.threads(), 1) forward(const __grid_constant__ ForwardParameters p) {
  constexpr ForwardTile kTile = Tile::kTile;
  extern __shared__ __align__(1024) std::byte shared_memory[];
  auto& shared = *reinterpret_cast<ForwardShared<Tile>*>(shared_memory);
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  init_all_barriers(shared);
  if (warp >= 4 * kTile.warpgroups) {
    if constexpr (kTile.warpgroups > 1) ptx::decrease_registers<kTile.producer_registers()>();
    if (warp == 4 * kTile.warpgroups && ptx::elect_one()) ForwardProducer<Tile>{p, shared}.run();
    return;
  }
  if constexpr (kTile.warpgroups > 1) ptx::increase_registers<kTile.consumer_registers()>();
  ForwardConsumer<Element, Tile> consumer{p, shared, warp / 4, static_cast<int>(threadIdx.x) % kWarpgroup};
  consumer.run();
}

template <class Element, class Tile>
ForwardInstance forward_instance() {
  return {reinterpret_cast<const void*>(&forward<Element, Tile>), Tile::kTile, Tile::kTimes,
          static_cast<int>(sizeof(ForwardShared<Tile>))};
}

}  // namespace fovea::cuda::sm90

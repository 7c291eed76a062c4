// Backward on Hopper (formulas: FlashAttention-2, Dao, arXiv 2307.08691, section 3.1). A thread block holds a K/V tile
// and streams the Q and dO tiles of its query heads past it: of all heads of the group, or of a split of them. Roles: a
// lane that loads by TMA, three lanes that keep the order in which key tiles add to dQ, and two key warpgroups, the
// consumers. Schedule: docs/kernels/sm90_backward.md.
#pragma once

#include "cuda/attention/sm90/backward_preprocess.cuh"
#include "cuda/attention/sm90/key_warpgroup.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/warpgroup.cuh"

namespace fovea::cuda::sm90 {

// One lane loads, for every step, Q with lse, then dO with delta. In the first step K comes with Q, and V with dO.
template <class Tile>
class BackwardLoader {
 public:
  const BackwardParameters& p;
  BackwardShared<Tile>& shared;
  const KeyTileWork& work;

  __device__ __forceinline__ void run() const {
    QueryWalk walk(work);
    RingPosition<Tile::kStages> at;
#pragma unroll 1
    for (int step = 0; step < work.steps; ++step) {
      const int first = walk.tile * kQueries;
      const std::int64_t row = walk.index(p, work) * kQueries;
      wait_empty(shared.q_barriers, at);
      const std::uint32_t q_full = expect(shared.q_barriers.full[at.stage()], step == 0);
      if (step == 0) load(shared.k, kKeys, p.k, q_full, work.first_key(), work.head_kv);
      load(shared.q[at.stage()], kQueries, p.q, q_full, first, walk.head);
      ptx::bulk_load(shared_address(shared.lse[at.stage()]), p.lse + row, kQueries * 4, q_full);
      // No wait: `empty` of Q also frees dO and delta.
      const std::uint32_t dout_full = expect(shared.dout_full[at.stage()], step == 0);
      if (step == 0) load(shared.v, kKeys, p.v, dout_full, work.first_key(), work.head_kv);
      load(shared.dout[at.stage()], kQueries, p.dout, dout_full, first, walk.head);
      ptx::bulk_load(shared_address(shared.delta[at.stage()]), p.delta + row, kQueries * 4, dout_full);
      walk.advance(p, work);
      at.advance();
    }
  }

 private:
  static constexpr int kQueries = Tile::kQueries, kRowBytes = Tile::kDim * 2;

  static __device__ __forceinline__ std::uint32_t expect(const std::uint64_t& barrier, bool with_keys) {
    const std::uint32_t address = shared_address(&barrier);
    ptx::mbarrier_arrive_expect(address, kQueries * (kRowBytes + 4) + (with_keys ? kKeys * kRowBytes : 0));
    return address;
  }
  __device__ __forceinline__ void load(std::byte* to, int rows, const CUtensorMap& map, std::uint32_t barrier, int row,
                                       int head) const {
#pragma unroll
    for (int panel = 0; panel < Tile::kPanels; ++panel)
      ptx::tma_load_4d(shared_address(to + panel * rows * 128), &map, barrier, panel * kPanelColumns, row, head,
                       work.batch);
  }
};

template <class Tile>
__global__ void __launch_bounds__(kBackwardThreads, 1) backward(const __grid_constant__ BackwardParameters p) {
  constexpr int kLoaderRegisters = 24, kKeyRegisters = 240;
  extern __shared__ __align__(1024) std::byte shared_memory[];
  auto& shared = *reinterpret_cast<BackwardShared<Tile>*>(shared_memory);
  if (threadIdx.x == 0) init_backward_barriers(shared);
  __syncthreads();
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  const KeyTileWork work = key_tile_work<Tile::kQueries>(p);
  ptx::griddepcontrol_wait();  // for lse, delta and the counters of turns
  if (warp >= 4) {
    ptx::increase_registers<kKeyRegisters>();
    KeyWarpgroup<Tile>(p, shared, work, warp / 4 - 1).run();
    return;
  }
  ptx::decrease_registers<kLoaderRegisters>();
  if (warp == 0 && ptx::elect_one()) BackwardLoader<Tile>{p, shared, work}.run();
  if (p.dq.data == nullptr) return;
  if (warp == 1 && ptx::elect_one()) wait_for_turns<Tile>(p, shared, work);
  if (warp >= 2 && ptx::elect_one()) announce_additions<Tile>(p, shared, work, warp - 2);
}

template <class Element, int kDim>
BackwardInstance backward_instance(BackwardTimes times) {
  using Tile = BackwardTile<Element, kDim>;
  return {.function = reinterpret_cast<const void*>(&backward<Tile>),
          .preprocess = reinterpret_cast<const void*>(&sm90::backward_preprocess<Element>),
          .dim = kDim,
          .queries = Tile::kQueries,
          .shared_bytes = static_cast<int>(sizeof(BackwardShared<Tile>)),
          .times = times};
}

}  // namespace fovea::cuda::sm90

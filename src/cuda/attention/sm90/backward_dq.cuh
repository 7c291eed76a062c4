// The way of dQ to memory. A query tile's dQ is two halves of 64 x 64, one per key warpgroup, which adds its half
// straight from registers. Key tiles add to a query tile in a fixed order; a counter per half says whose turn it is.
// The first stores, the last rounds the sum and writes the gradient. Counters lie in global memory, so lanes of other
// warps handle them: one waits for turns, two announce additions.
#pragma once

#include "cuda/attention/sm90/backward_shared.cuh"
#include "cuda/attention/sm90/backward_work.cuh"
#include "cuda/attention/sm90/store_row.cuh"
#include "cuda/device/sequence.cuh"
#include "cuda/ptx/ordered_memory.cuh"

namespace fovea::cuda::sm90 {

// One lane waits for the turns of both halves of every step, ahead of the key warpgroups.
template <class Tile>
__device__ __forceinline__ void wait_for_turns(const BackwardParameters& p, BackwardShared<Tile>& shared,
                                               const KeyTileWork& work) {
  QueryWalk walk(work);
  RingPosition<kTurnSlots> slot;
#pragma unroll 1
  for (int step = 0; step < work.steps; ++step) {
    const unsigned before = turns_before<Tile::kQueries>(p, work, walk.tile);
    const unsigned* turns = p.turns + walk.index(p, work) * kKeyWarpgroups;
#pragma unroll 1
    for (int half = 0; half < kKeyWarpgroups; ++half) {
      wait_empty(shared.turn_barriers[half], slot);
      while (before > 0 && ptx::load_acquire(turns + half) != before) {
      }
      ptx::mbarrier_arrive(shared_address(&shared.turn_ready[half][slot.stage()]));
    }
    walk.advance(p, work);
    slot.advance();
  }
}

// One lane of a half lets the next key tile take its turn once the key warpgroup has added.
template <class Tile>
__device__ __forceinline__ void announce_additions(const BackwardParameters& p, BackwardShared<Tile>& shared,
                                                   const KeyTileWork& work, int half) {
  const StageBarriers<kTurnSlots>& barriers = shared.turn_barriers[half];
  QueryWalk walk(work);
  RingPosition<kTurnSlots> slot;
#pragma unroll 1
  for (int step = 0; step < work.steps; ++step) {
    unsigned* turns = p.turns + walk.index(p, work) * kKeyWarpgroups + half;
    wait_full(barriers, slot);
    // The key warpgroup's additions come before its arrivals, and so before this release.
    if (!turn_of<Tile::kQueries>(p, work, walk.tile).last) ptx::add_release(turns, 1);
    release(barriers, slot, true);
    walk.advance(p, work);
    slot.advance();
  }
}

// Adds the sums that the key tiles before have left in memory (null: there were none), and writes the gradient. Rows
// are the half's queries.
template <class Tile>
__device__ __forceinline__ void finish_dq(float (&dq)[32], const BackwardParameters& p, const KeyTileWork& work,
                                          const QueryWalk& walk, int half, const float* sums) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup, lane = thread % 32;
  if (sums != nullptr) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 sum = __ldcg(reinterpret_cast<const float4*>(sums) + i * kWarpgroup);
      dq[4 * i] += sum.x;
      dq[4 * i + 1] += sum.y;
      dq[4 * i + 2] += sum.z;
      dq[4 * i + 3] += sum.w;
    }
  }
  const int column = Tile::kPanels == 1 ? 0 : half * kPanelColumns;
  const int query = walk.tile * Tile::kQueries + (Tile::kPanels == 1 ? half * 64 : 0) + thread / 32 * 16 + lane / 4;
  const std::int64_t offset = row_offset(p.dq, work.batch, walk.head, query) + column;
  store_rows<typename Tile::Element>(p.dq, {offset, offset + 8 * p.dq.row_stride},
                                     {query < p.shape.len_q, query + 8 < p.shape.len_q}, dq, p.shape.scale,
                                     p.shape.dim_qk - column, p.accumulate);
}

// A key warpgroup adds its half in turn.
template <class Tile>
__device__ __forceinline__ void add_dq(float (&dq)[32], const BackwardParameters& p, BackwardShared<Tile>& shared,
                                       const KeyTileWork& work, const QueryWalk& walk, int half,
                                       RingPosition<kTurnSlots>& slot) {
  if (p.dq.data == nullptr) return;
  const Turn turn = turn_of<Tile::kQueries>(p, work, walk.tile);
  float* sums = p.dq_sum + (walk.index(p, work) * kKeyWarpgroups + half) * kHalfFloats +
                static_cast<int>(threadIdx.x) % kWarpgroup * 4;
  ptx::mbarrier_wait(shared_address(&shared.turn_ready[half][slot.stage()]), slot.phase());
  if (turn.last) {
    finish_dq<Tile>(dq, p, work, walk, half, turn.first ? nullptr : sums);
  } else if (turn.first) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      __stcg(reinterpret_cast<float4*>(sums) + i * kWarpgroup,
             make_float4(dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]));
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      ptx::add_float4(sums + i * kWarpgroup * 4, dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
  }
  arrive_warp(shared.turn_barriers[half].full[slot.stage()]);
  slot.advance();
}

}  // namespace fovea::cuda::sm90

// dQ of wide heads (formulas: FlashAttention-2, Dao, arXiv 2307.08691, section 3.1). A thread block holds a tile of 128
// rows of Q and dO and streams the K and V tiles past it. Each of two warpgroups makes dP, S, dS and dQ of 64 rows.
// Schedule: docs/kernels/sm90_backward.md.
#pragma once

#include "cuda/attention/sm90/softmax.cuh"
#include "cuda/attention/sm90/store_row.cuh"
#include "cuda/attention/sm90/two_pass_tiles.cuh"
#include "cuda/device/sequence.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/warpgroup.cuh"

namespace fovea::cuda::sm90 {

template <class Tile>
struct DqShared {
  // Slots hold V and K tiles alternately. V is free after dP, K only after dQ.
  static constexpr int kSlotBytes = Tile::kQkBytes > Tile::kVBytes ? Tile::kQkBytes : Tile::kVBytes;
  static constexpr int kSlots = kSlotBytes > 24 * 1024 ? 3 : 4;
  alignas(1024) std::byte q[2][Tile::kQkBytes];  // of each warpgroup
  std::byte dout[2][Tile::kVBytes];
  std::byte slots[kSlots][kSlotBytes];
  std::uint64_t q_full[2], dout_full[2];  // of each warpgroup; used once
  StageBarriers<kSlots> slot_barriers;
};

// A Q tile, and the key tiles that any of its rows sees.
struct DqWork {
  int first_query, head, batch;
  Range key_tiles, unmasked;
};
__device__ __forceinline__ DqWork dq_work(const TwoPassParameters& p) {
  const Shape& s = p.shape;
  const SequenceTile at = sequence_tile(p.order);
  DqWork work;
  work.first_query = (p.order.tiles - 1 - at.tile) * kDqRows;  // under a causal mask the last rows see most keys
  work.batch = at.sequence / s.heads_q;
  work.head = at.sequence - work.batch * s.heads_q;
  const int last = min(work.first_query + kDqRows, s.len_q) - 1;
  work.key_tiles = tiles_of(keys_of_any(s, work.first_query, last), kTwoPassRows);
  const Range all = keys_of_all(s, work.first_query, last);
  work.unmasked = {(all.begin + kTwoPassRows - 1) / kTwoPassRows, all.end / kTwoPassRows};
  return work;
}

// The producer: one lane loads dO and Q of each warpgroup once, then V and K of every tile.
template <class Tile>
__device__ __forceinline__ void load_dq(const TwoPassParameters& p, DqShared<Tile>& shared, const DqWork& work) {
  const int head_kv = work.head / p.shape.group;
  const auto load_rows_of = [&](int warpgroup) {
    const int row = work.first_query + warpgroup * kTwoPassRows;
    const std::uint32_t dout_full = shared_address(&shared.dout_full[warpgroup]);
    ptx::mbarrier_arrive_expect(dout_full, Tile::kVBytes);
    load_tile_panels<Tile::kDimV>(shared.dout[warpgroup], p.dout, dout_full, row, work.head, work.batch);
    const std::uint32_t q_full = shared_address(&shared.q_full[warpgroup]);
    ptx::mbarrier_arrive_expect(q_full, Tile::kQkBytes);
    load_tile_panels<Tile::kDimQk>(shared.q[warpgroup], p.q, q_full, row, work.head, work.batch);
  };
  RingPosition<DqShared<Tile>::kSlots> at;
#pragma unroll 1
  for (int tile = work.key_tiles.begin; tile < work.key_tiles.end; ++tile) {
    if (tile == work.key_tiles.begin) load_rows_of(0);
    wait_empty(shared.slot_barriers, at);
    const std::uint32_t v_full = shared_address(&shared.slot_barriers.full[at.stage()]);
    ptx::mbarrier_arrive_expect(v_full, Tile::kVBytes);
    load_tile_panels<Tile::kDimV>(shared.slots[at.stage()], p.v, v_full, tile * kTwoPassRows, head_kv, work.batch);
    at.advance();
    wait_empty(shared.slot_barriers, at);
    const std::uint32_t k_full = shared_address(&shared.slot_barriers.full[at.stage()]);
    ptx::mbarrier_arrive_expect(k_full, Tile::kQkBytes);
    load_tile_panels<Tile::kDimQk>(shared.slots[at.stage()], p.k, k_full, tile * kTwoPassRows, head_kv, work.batch);
    at.advance();
    if (tile == work.key_tiles.begin) load_rows_of(1);  // after the first V and K, so that warpgroup 0 starts early
  }
}

// lse and delta of a thread's two rows.
struct LseAndDelta {
  float lse[2], delta[2];  // lse * log2(e)
};

// dp = dS = P (dP - delta), in place of dP. Keys outside `visible`, counted from the thread's first column on, have P =
// dS = 0, whatever S and dP are.
template <bool kMasked, int kCount>
__device__ __forceinline__ void score_gradients_of_rows(const float (&scores)[kCount], float (&dp)[kCount],
                                                        const LseAndDelta& rows, float scale_log2e,
                                                        const Range (&visible)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int row = row_of(i), column = i / 4 * 8 + i % 2;
    const float p = ptx::exp2_approx(fmaf(scores[i], scale_log2e, -rows.lse[row]));
    dp[i] = p * (dp[i] - rows.delta[row]);
    if (kMasked && (column < visible[row].begin || column >= visible[row].end)) dp[i] = 0.0f;
  }
}

template <class Tile>
struct DqWarpgroup {
  using Element = typename Tile::Element;
  const TwoPassParameters& p;
  DqShared<Tile>& shared;
  const DqWork& work;
  int warpgroup;

  __device__ __forceinline__ int query() const {
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
    return work.first_query + warpgroup * kTwoPassRows + thread / 32 * 16 + thread % 32 / 4;
  }

  // The keys that a query sees, counted from `key` on.
  __device__ __forceinline__ Range visible_from(int at, int key) const {
    const Range visible = visible_keys(p.shape, at);
    return {visible.begin - key, visible.end - key};
  }

  __device__ __forceinline__ LseAndDelta lse_and_delta() const {
    LseAndDelta rows;
    const std::int64_t first =
        (static_cast<std::int64_t>(work.batch) * p.shape.heads_q + work.head) * p.query_tiles * kTwoPassRows;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int at = query() + 8 * row;
      const bool valid = at < p.shape.len_q;
      rows.lse[row] = valid ? p.lse[first + at] : kInfinity;
      rows.delta[row] = valid ? p.delta[first + at] : 0.0f;
    }
    return rows;
  }

  __device__ __forceinline__ void run() const {
    float dq[Tile::kDimQk / 2];
    std::uint32_t operands[kTwoPassRows / 4];
    set_zero(dq);
    ptx::wgmma_fence_operand(dq);
    const LseAndDelta rows = lse_and_delta();
    RingPosition<DqShared<Tile>::kSlots> at;
    unsigned slot_before = 0;
    if (work.key_tiles.begin < work.key_tiles.end) {
      ptx::mbarrier_wait(shared_address(&shared.dout_full[warpgroup]), 0);
      ptx::mbarrier_wait(shared_address(&shared.q_full[warpgroup]), 0);
    }
#pragma unroll 1
    for (int tile = work.key_tiles.begin; tile < work.key_tiles.end; ++tile) {
      float dp[kTwoPassRows / 2], scores[kTwoPassRows / 2];
      const unsigned v_slot = at.stage();
      wait_full(shared.slot_barriers, at);
      ptx::wgmma_fence();
      issue_rows_product<Element, Tile::kDimV>(dp, shared.dout[warpgroup], shared.slots[v_slot]);
      ptx::wgmma_commit();
      at.advance();
      const unsigned k_slot = at.stage();
      ptx::wgmma_wait<1>();  // dQ of the tile before
      ptx::wgmma_fence_operand(operands);
      if (tile > work.key_tiles.begin) arrive_warp(shared.slot_barriers.empty[slot_before]);
      wait_full(shared.slot_barriers, at);
      ptx::wgmma_fence();
      issue_rows_product<Element, Tile::kDimQk>(scores, shared.q[warpgroup], shared.slots[k_slot]);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
      ptx::wgmma_fence_operand(dp);
      arrive_warp(shared.slot_barriers.empty[v_slot]);
      ptx::wgmma_wait<0>();
      ptx::wgmma_fence_operand(scores);
      if (tile < work.unmasked.begin || tile >= work.unmasked.end) {
        const int key = tile * kTwoPassRows + 2 * static_cast<int>(threadIdx.x % 4);
        score_gradients_of_rows<true>(scores, dp, rows, p.shape.scale_log2e,
                                      {visible_from(query(), key), visible_from(query() + 8, key)});
      } else {
        score_gradients_of_rows<false>(scores, dp, rows, p.shape.scale_log2e, {});
      }
      pack_operand<Element>(operands, dp);
      ptx::wgmma_fence_operand(operands);
      ptx::wgmma_fence();
      issue_gradient_product<Element>(dq, operands, shared.slots[k_slot]);
      ptx::wgmma_commit();
      slot_before = k_slot;
      at.advance();
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_fence_operand(dq);
    const std::int64_t offset = row_offset(p.dq, work.batch, work.head, query());
    store_rows<Element>(p.dq, {offset, offset + 8 * p.dq.row_stride},
                        {query() < p.shape.len_q, query() + 8 < p.shape.len_q}, dq, p.shape.scale, p.shape.dim_qk,
                        p.accumulate);
  }
};

template <class Tile>
__global__ void __launch_bounds__(kTwoPassThreads, 1) two_pass_dq(const __grid_constant__ TwoPassParameters p) {
  extern __shared__ __align__(1024) std::byte shared_memory[];
  auto& shared = *reinterpret_cast<DqShared<Tile>*>(shared_memory);
  if (threadIdx.x == 0) {
    init_barriers(shared.slot_barriers, 8);
    for (int i = 0; i < 2; ++i) {
      ptx::mbarrier_init(shared_address(&shared.q_full[i]), 1);
      ptx::mbarrier_init(shared_address(&shared.dout_full[i]), 1);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  const DqWork work = dq_work(p);
  if (!p.lse_and_delta_ready) ptx::griddepcontrol_wait();  // for lse and delta
  if (warp < 4) {
    ptx::decrease_registers<24>();
    // One warp of the grid always waits for the kernel ahead, of dK and dV: otherwise the call could end before it.
    if (blockIdx.x == 0 && warp == 1) ptx::griddepcontrol_wait();
    if (warp == 0 && ptx::elect_one()) load_dq<Tile>(p, shared, work);
    return;
  }
  ptx::increase_registers<240>();
  DqWarpgroup<Tile>{p, shared, work, warp / 4 - 1}.run();
}

}  // namespace fovea::cuda::sm90

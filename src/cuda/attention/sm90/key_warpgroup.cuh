// A key warpgroup of backward: S^T, dP^T, dV and dK of its 64 keys, and half of dQ over all 128 keys of the K/V tile. A
// step makes the first four of one query tile, then half of dQ = dS K of the step before. dQ needs dS of both
// warpgroups. One step later the other's dS is usually there, so the warpgroups seldom wait for each other, and the
// arithmetic of one runs under the MMAs of the other.
#pragma once

#include "cuda/attention/sm90/accumulator.cuh"
#include "cuda/attention/sm90/backward_dq.cuh"
#include "cuda/attention/sm90/backward_scores.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "cuda/ptx/wgmma_wide.cuh"

namespace fovea::cuda::sm90 {

// c = a b^T of 64 rows of a, in panels of kKeys rows, and all rows of b, in panels of kCount * 2 rows. Descriptors
// count in 16 bytes: a step of 16 columns is 2 further, a panel of n rows 8 n.
template <class Tile, int kCount>
__device__ __forceinline__ void issue_scores(float (&c)[kCount], std::uint64_t a, std::uint64_t b) {
#pragma unroll
  for (int i = 0; i < Tile::kDim / 16; ++i) {
    const std::uint64_t a_step = a + i / 4 * (kKeys * 8) + i % 4 * 2, b_step = b + i / 4 * (kCount * 16) + i % 4 * 2;
    if (i == 0) {
      ptx::wgmma_ss<typename Tile::Element, false>(c, a_step, b_step);
    } else {
      ptx::wgmma_ss<typename Tile::Element, true>(c, a_step, b_step);
    }
  }
}

// c += a b with a in registers and b in shared memory, its rows along the contraction.
template <class Element, int kWords, int kCount>
__device__ __forceinline__ void issue_gradient(float (&c)[kCount], const std::uint32_t (&a)[kWords], std::uint64_t b) {
#pragma unroll
  for (int i = 0; i < kWords / 4; ++i) ptx::wgmma_rs<Element, true, true>(c, a + 4 * i, b + i * 128);
}

// Half of dQ = dS K: 64 queries x 64 columns. With one panel of K the warpgroups divide the queries, with two the
// columns.
template <class Tile>
__device__ __forceinline__ void issue_dq(float (&dq)[32], BackwardShared<Tile>& shared, unsigned slot, int warpgroup) {
  constexpr int kPanelBytes = kKeys * 128, kBothMnMajor = 3;
  const int ds_panel = Tile::kPanels == 1 ? warpgroup : 0, k_panel = Tile::kPanels == 1 ? 0 : warpgroup;
  const std::uint64_t ds =
      ptx::mn_major_descriptor(shared_address(shared.ds[slot]) + ds_panel * kPanelBytes, kPanelBytes);
  const std::uint64_t keys = ptx::mn_major_descriptor(shared_address(shared.k) + k_panel * kPanelBytes, kPanelBytes);
#pragma unroll
  for (int i = 0; i < kKeys / 16; ++i) {
    if (i == 0) {
      ptx::wgmma_ss<typename Tile::Element, false, kBothMnMajor>(dq, ds, keys);
    } else {
      ptx::wgmma_ss<typename Tile::Element, true, kBothMnMajor>(dq, ds + i * 128, keys + i * 128);
    }
  }
}

template <class Tile>
class KeyWarpgroup {
 public:
  __device__ __forceinline__ KeyWarpgroup(const BackwardParameters& p, BackwardShared<Tile>& shared,
                                          const KeyTileWork& work, int warpgroup)
      : p_(p), shared_(shared), work_(work), f_(warpgroup), walk_(work), before_(work) {
    const Range all = queries_of_all(p.shape, work.first_key(), work.first_key() + kKeys - 1);
    unmasked_ = {work.first_key() + kKeys > p.shape.len_k ? p.order.query_tiles : (all.begin + kQueries - 1) / kQueries,
                 all.end == p.shape.len_q ? p.order.query_tiles : all.end / kQueries};
    constexpr int kRowsBytes = kWarpgroupRows * 128;
    k_rows_ = ptx::k_major_descriptor(shared_address(shared.k) + warpgroup * kRowsBytes);
    v_rows_ = ptx::k_major_descriptor(shared_address(shared.v) + warpgroup * kRowsBytes);
  }

  __device__ __forceinline__ void run() {
    float dk[Tile::kDim / 2], dv[Tile::kDim / 2];
#pragma unroll
    for (int i = 0; i < Tile::kDim / 2; ++i) dk[i] = dv[i] = 0.0f;
    ptx::wgmma_fence_operand(dk);
    ptx::wgmma_fence_operand(dv);
#pragma unroll 1
    for (int step = 0; step < work_.steps; ++step) {
      run_step(dk, dv, step > 0);
      before_ = walk_;
      walk_.advance(p_, work_);
      stage_.advance();
      slot_.advance();
    }
    if (work_.steps > 0) finish_last_dq();
    store(p_.dv, dv, 1.0f, p_.shape.dim_v);
    store(p_.dk, dk, p_.shape.scale, p_.shape.dim_qk);
  }

 private:
  using Element = typename Tile::Element;
  static constexpr int kQueries = Tile::kQueries, kCount = kQueries / 2, kTileBytes = kQueries * 128;

  // P^T and dS^T first, then dV and dK of this step beside half of dQ of the step before. Without a wanted dQ it is
  // still multiplied, then dropped.
  __device__ __forceinline__ void run_step(float (&dk)[Tile::kDim / 2], float (&dv)[Tile::kDim / 2], bool has_before) {
    const unsigned stage = stage_.stage();
    const std::uint32_t q = shared_address(shared_.q[stage]), dout = shared_address(shared_.dout[stage]);
    std::uint32_t p_operands[kCount / 2], ds_operands[kCount / 2];
    make_operands(p_operands, ds_operands, q, dout);
    ptx::wgmma_fence();
    issue_gradient<Element>(dv, p_operands, ptx::mn_major_descriptor(dout, kTileBytes));
    issue_gradient<Element>(dk, ds_operands, ptx::mn_major_descriptor(q, kTileBytes));
    ptx::wgmma_commit();
    if (!has_before) {
      ptx::wgmma_wait<0>();
      ptx::wgmma_fence_operand(p_operands);
      ptx::wgmma_fence_operand(ds_operands);
      arrive_warp(shared_.q_barriers.empty[stage]);
      return;
    }
    const unsigned slot = slot_.stage() ^ 1;
    wait_ds_before();
    float dq[32];
    ptx::wgmma_fence();
    issue_dq<Tile>(dq, shared_, slot, f_.warpgroup);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();  // dV and dK: the stage of Q and dO is free
    ptx::wgmma_fence_operand(p_operands);
    ptx::wgmma_fence_operand(ds_operands);
    arrive_warp(shared_.q_barriers.empty[stage]);
    ptx::wgmma_wait<0>();  // dQ: the slot of dS is free
    ptx::wgmma_fence_operand(dq);
    arrive_warp(shared_.ds_barriers.empty[slot]);
    add_dq<Tile>(dq, p_, shared_, work_, before_, f_.warpgroup, turn_slot_);
  }

  // P^T and dS^T of the step as operands; dS^T also goes to shared memory.
  __device__ __forceinline__ void make_operands(std::uint32_t (&p_operands)[kCount / 2],
                                                std::uint32_t (&ds_operands)[kCount / 2], std::uint32_t q,
                                                std::uint32_t dout) {
    const Shape& s = p_.shape;
    const unsigned stage = stage_.stage();
    float scores[kCount], dp[kCount];
    ptx::mbarrier_wait(shared_address(&shared_.q_barriers.full[stage]), stage_.phase());
    ptx::wgmma_fence();
    issue_scores<Tile>(scores, k_rows_, ptx::k_major_descriptor(q));
    ptx::wgmma_commit();
    ptx::mbarrier_wait(shared_address(&shared_.dout_full[stage]), stage_.phase());
    ptx::wgmma_fence();
    issue_scores<Tile>(dp, v_rows_, ptx::k_major_descriptor(dout));
    ptx::wgmma_commit();
    const bool masked = walk_.tile < unmasked_.begin || walk_.tile >= unmasked_.end;
    const FragmentMask mask(s, f_, work_.first_key(), walk_.tile * kQueries);
    ptx::wgmma_wait<1>();
    ptx::wgmma_fence_operand(scores);
    if (masked) {
      probabilities<true>(scores, shared_.lse[stage], s.scale_log2e, f_, mask);
    } else {
      probabilities<false>(scores, shared_.lse[stage], s.scale_log2e, f_, mask);
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_fence_operand(dp);
    if (masked) {
      score_gradients<true>(scores, dp, shared_.delta[stage], f_);
    } else {
      score_gradients<false>(scores, dp, shared_.delta[stage], f_);
    }
    pack_operand<Element>(p_operands, scores);
    ptx::wgmma_fence_operand(p_operands);
    pack_operand<Element>(ds_operands, dp);
    store_ds(ds_operands);
  }

  // dS^T goes to the slot of this step, for both key warpgroups.
  __device__ __forceinline__ void store_ds(const std::uint32_t (&ds_operands)[kCount / 2]) {
    wait_empty(shared_.ds_barriers, slot_);
    const std::uint32_t ds = shared_address(shared_.ds[slot_.stage()]);
#pragma unroll
    for (int i = 0; i < kQueries / 16; ++i) {
      const std::uint32_t words[4] = {ds_operands[4 * i], ds_operands[4 * i + 1], ds_operands[4 * i + 2],
                                      ds_operands[4 * i + 3]};
      ptx::stmatrix_x4(ds + f_.store_offset(i, kKeys), words);
    }
    // stmatrix's writes before wgmma reads dS; this thread's reads of lse and delta before a copy overwrites them.
    ptx::fence_proxy_async();
    arrive_warp(shared_.ds_barriers.full[slot_.stage()]);
  }

  // Waits until both key warpgroups have stored dS of the step before, in the other slot. Step n has slot n % 2 and
  // parity n / 2 % 2. So in a step of slot 0 the step before had the opposite parity, in a step of slot 1 the same one.
  __device__ __forceinline__ void wait_ds_before() {
    const unsigned slot = slot_.stage() ^ 1;
    ptx::mbarrier_wait(shared_address(&shared_.ds_barriers.full[slot]), slot_.phase() ^ slot);
  }

  // dQ of the last step, after the loop.
  __device__ __forceinline__ void finish_last_dq() {
    wait_ds_before();
    float dq[32];
    ptx::wgmma_fence();
    issue_dq<Tile>(dq, shared_, slot_.stage() ^ 1, f_.warpgroup);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::wgmma_fence_operand(dq);
    add_dq<Tile>(dq, p_, shared_, work_, before_, f_.warpgroup, turn_slot_);
  }

  __device__ __forceinline__ void store(const TensorRef& t, const float (&values)[Tile::kDim / 2], float factor,
                                        int dim) {
    if (t.data == nullptr) return;
    const int key = work_.first_key() + f_.row;
    // Partials are [splits, batch, ...]; without splits, the split is 0.
    const std::int64_t offset = row_offset(t, work_.split * p_.shape.batch + work_.batch, work_.head_kv, key);
    store_rows<Element>(t, {offset, offset + 8 * t.row_stride}, {key < p_.shape.len_k, key + 8 < p_.shape.len_k},
                        values, factor, dim, p_.accumulate && p_.order.splits == 1);
  }

  const BackwardParameters& p_;
  BackwardShared<Tile>& shared_;
  const KeyTileWork& work_;
  const KeyFragment f_;
  QueryWalk walk_, before_;  // the query tiles of this step and of the one before
  RingPosition<Tile::kStages> stage_;
  RingPosition<kDsSlots> slot_;
  RingPosition<kTurnSlots> turn_slot_;
  Range unmasked_;  // query tiles that need no mask; rows beyond the last query have lse = +inf, so P = 0
  std::uint64_t k_rows_, v_rows_;
};

}  // namespace fovea::cuda::sm90

// dK and dV of wide heads (formulas: FlashAttention-2, Dao, arXiv 2307.08691, section 3.1). A thread block holds a K/V
// tile of 64 rows and streams the Q and dO tiles of all query heads of the group past it. One warpgroup makes S^T, P^T
// and dV, the other dP^T, dS^T and dK; P^T goes from one to the other. Schedule: docs/kernels/sm90_backward.md.
#pragma once

#include "cuda/attention/sm90/store_row.cuh"
#include "cuda/attention/sm90/two_pass_tiles.cuh"
#include "cuda/device/sequence.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/warpgroup.cuh"

namespace fovea::cuda::sm90 {

template <class Tile>
struct DkDvShared {
  static constexpr int kStages = 2, kPSlots = 2;
  alignas(1024) std::byte k[Tile::kQkBytes];
  std::byte v[Tile::kVBytes];
  std::byte q[kStages][Tile::kQkBytes];
  std::byte dout[kStages][Tile::kVBytes];
  // P^T in accumulator order: thread i of the first warpgroup writes it for thread i of the second.
  float p[kPSlots][kTwoPassRows * kTwoPassRows];
  alignas(128) float lse[kStages][kTwoPassRows];
  float delta[kStages][kTwoPassRows];
  // Of Q with lse, and of dO with delta. `empty`: every warp of both warpgroups is done with the stage.
  StageBarriers<kStages> q_barriers, dout_barriers;
  // Of P^T. `full`: every thread of the first warpgroup has written its part. `empty`: every thread of the second one
  // has read its part. Each thread arrives for itself: racecheck follows no arrival on behalf of a warp.
  StageBarriers<kPSlots> p_barriers;
};

// A K/V tile, and the query tiles that see any of it.
struct DkDvWork {
  int first_key, head_kv, batch;
  Range query_tiles, unmasked;
  int steps;  // over all query heads of the group
};
__device__ __forceinline__ DkDvWork dkdv_work(const TwoPassParameters& p) {
  const Shape& s = p.shape;
  const SequenceTile at = sequence_tile(p.order);
  DkDvWork work;
  work.first_key = at.tile * kTwoPassRows;
  work.batch = at.sequence / s.heads_kv;
  work.head_kv = at.sequence - work.batch * s.heads_kv;
  const int last_key = min(work.first_key + kTwoPassRows, s.len_k) - 1;
  work.query_tiles = tiles_of(queries_of_any(s, work.first_key, last_key), kTwoPassRows);
  const Range all = queries_of_all(s, work.first_key, work.first_key + kTwoPassRows - 1);
  const bool partial = work.first_key + kTwoPassRows > s.len_k;
  work.unmasked = {partial ? p.query_tiles : (all.begin + kTwoPassRows - 1) / kTwoPassRows,
                   all.end == s.len_q ? p.query_tiles : all.end / kTwoPassRows};
  work.steps = (work.query_tiles.end - work.query_tiles.begin) * s.group;
  return work;
}

// Query tiles in ascending order, head by head.
struct DkDvWalk {
  int tile, head;
  __device__ __forceinline__ DkDvWalk(const DkDvWork& work, const Shape& s)
      : tile(work.query_tiles.begin), head(work.head_kv * s.group) {}
  __device__ __forceinline__ void advance(const DkDvWork& work) {
    if (++tile == work.query_tiles.end) tile = work.query_tiles.begin, ++head;
  }
};

// The producer: one lane loads, for every step, Q with lse, then dO with delta. In the first step K comes with Q, and V
// with dO.
template <class Tile>
__device__ __forceinline__ void load_dkdv(const TwoPassParameters& p, DkDvShared<Tile>& shared, const DkDvWork& work) {
  constexpr int kLseBytes = kTwoPassRows * 4;  // lse of a query tile; delta has as many
  DkDvWalk walk(work, p.shape);
  RingPosition<DkDvShared<Tile>::kStages> at;
#pragma unroll 1
  for (int step = 0; step < work.steps; ++step) {
    const int first = walk.tile * kTwoPassRows;
    const std::int64_t sequence = static_cast<std::int64_t>(work.batch) * p.shape.heads_q + walk.head;
    const std::int64_t row = (sequence * p.query_tiles + walk.tile) * kTwoPassRows;
    const unsigned stage = at.stage();
    wait_empty(shared.q_barriers, at);
    const std::uint32_t q_full = shared_address(&shared.q_barriers.full[stage]);
    ptx::mbarrier_arrive_expect(q_full, Tile::kQkBytes * (step == 0 ? 2 : 1) + kLseBytes);
    if (step == 0) load_tile_panels<Tile::kDimQk>(shared.k, p.k, q_full, work.first_key, work.head_kv, work.batch);
    load_tile_panels<Tile::kDimQk>(shared.q[stage], p.q, q_full, first, walk.head, work.batch);
    ptx::bulk_load(shared_address(shared.lse[stage]), p.lse + row, kLseBytes, q_full);
    wait_empty(shared.dout_barriers, at);
    const std::uint32_t dout_full = shared_address(&shared.dout_barriers.full[stage]);
    ptx::mbarrier_arrive_expect(dout_full, Tile::kVBytes * (step == 0 ? 2 : 1) + kLseBytes);
    if (step == 0) load_tile_panels<Tile::kDimV>(shared.v, p.v, dout_full, work.first_key, work.head_kv, work.batch);
    load_tile_panels<Tile::kDimV>(shared.dout[stage], p.dout, dout_full, first, walk.head, work.batch);
    ptx::bulk_load(shared_address(shared.delta[stage]), p.delta + row, kLseBytes, dout_full);
    walk.advance(work);
    at.advance();
  }
}

// One of the two warpgroups. The first runs make_dv(), the second make_dk().
template <class Tile>
class DkDvWarpgroup {
 public:
  using Element = typename Tile::Element;
  __device__ __forceinline__ DkDvWarpgroup(const TwoPassParameters& p, DkDvShared<Tile>& shared, const DkDvWork& work)
      : p_(p), shared_(shared), work_(work), f_(0), walk_(work, p.shape) {}

  // S^T = K Q^T, P^T, dV += P^T dO.
  __device__ __forceinline__ void make_dv() {
    float dv[Tile::kDimV / 2];
    std::uint32_t operands[kTwoPassRows / 4];
    set_zero(dv);
    ptx::wgmma_fence_operand(dv);
#pragma unroll 1
    for (int step = 0; step < work_.steps; ++step) {
      const unsigned stage = at_.stage();
      float scores[kTwoPassRows / 2];
      wait_full(shared_.q_barriers, at_);
      ptx::wgmma_fence();
      issue_rows_product<Element, Tile::kDimQk>(scores, shared_.k, shared_.q[stage]);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();  // dV of the step before
      ptx::wgmma_fence_operand(operands);
      if (step > 0) arrive_warp(shared_.dout_barriers.empty[stage ^ 1]);
      ptx::wgmma_wait<0>();
      ptx::wgmma_fence_operand(scores);
      const FragmentMask mask(p_.shape, f_, work_.first_key, walk_.tile * kTwoPassRows);
      if (masked()) {
        probabilities<true>(scores, shared_.lse[stage], p_.shape.scale_log2e, f_, mask);
      } else {
        probabilities<false>(scores, shared_.lse[stage], p_.shape.scale_log2e, f_, mask);
      }
      ptx::fence_proxy_async();  // lse is read; the next copy into its stage is a write of the async proxy
      arrive_warp(shared_.q_barriers.empty[stage]);
      pack_operand<Element>(operands, scores);
      wait_empty(shared_.p_barriers, at_);
#pragma unroll
      for (int i = 0; i < kChunks; ++i)
        p_chunks(stage)[i * kWarpgroup] = {scores[4 * i], scores[4 * i + 1], scores[4 * i + 2], scores[4 * i + 3]};
      ptx::mbarrier_arrive(shared_address(&shared_.p_barriers.full[stage]));
      wait_full(shared_.dout_barriers, at_);
      ptx::wgmma_fence_operand(operands);
      ptx::wgmma_fence();
      issue_gradient_product<Element>(dv, operands, shared_.dout[stage]);
      ptx::wgmma_commit();
      advance();
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_fence_operand(dv);
    store(p_.dv, dv, 1.0f, p_.shape.dim_v);
  }

  // dP^T = V dO^T, dS^T, dK += dS^T Q.
  __device__ __forceinline__ void make_dk() {
    float dk[Tile::kDimQk / 2];
    std::uint32_t operands[kTwoPassRows / 4];
    set_zero(dk);
    ptx::wgmma_fence_operand(dk);
#pragma unroll 1
    for (int step = 0; step < work_.steps; ++step) {
      const unsigned stage = at_.stage();
      float dp[kTwoPassRows / 2];
      wait_full(shared_.dout_barriers, at_);
      ptx::wgmma_fence();
      issue_rows_product<Element, Tile::kDimV>(dp, shared_.v, shared_.dout[stage]);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();  // dK of the step before
      ptx::wgmma_fence_operand(operands);
      if (step > 0) arrive_warp(shared_.q_barriers.empty[stage ^ 1]);
      ptx::wgmma_wait<0>();
      ptx::wgmma_fence_operand(dp);
      wait_full(shared_.p_barriers, at_);
      if (masked()) {
        make_ds<true>(dp, stage);
      } else {
        make_ds<false>(dp, stage);
      }
      ptx::mbarrier_arrive(shared_address(&shared_.p_barriers.empty[stage]));
      ptx::fence_proxy_async();  // delta is read
      arrive_warp(shared_.dout_barriers.empty[stage]);
      pack_operand<Element>(operands, dp);
      wait_full(shared_.q_barriers, at_);
      ptx::wgmma_fence_operand(operands);
      ptx::wgmma_fence();
      issue_gradient_product<Element>(dk, operands, shared_.q[stage]);
      ptx::wgmma_commit();
      advance();
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_fence_operand(dk);
    store(p_.dk, dk, p_.shape.scale, p_.shape.dim_qk);
  }

 private:
  __device__ __forceinline__ bool masked() const {
    return walk_.tile < work_.unmasked.begin || walk_.tile >= work_.unmasked.end;
  }
  __device__ __forceinline__ void advance() {
    walk_.advance(work_);
    at_.advance();
  }
  static constexpr int kChunks = kTwoPassRows / 8;  // of four floats, a thread's part of P^T
  __device__ __forceinline__ float4* p_chunks(unsigned slot) {
    return reinterpret_cast<float4*>(shared_.p[slot]) + threadIdx.x % kWarpgroup;
  }
  template <bool kMasked>
  __device__ __forceinline__ void make_ds(float (&dp)[kTwoPassRows / 2], unsigned stage) {
    float p[kTwoPassRows / 2];
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const float4 chunk = p_chunks(stage)[i * kWarpgroup];
      p[4 * i] = chunk.x, p[4 * i + 1] = chunk.y, p[4 * i + 2] = chunk.z, p[4 * i + 3] = chunk.w;
    }
    score_gradients<kMasked>(p, dp, shared_.delta[stage], f_);
  }
  template <int kCount>
  __device__ __forceinline__ void store(const TensorRef& t, const float (&values)[kCount], float factor, int dim) {
    if (t.data == nullptr) return;
    const int key = work_.first_key + f_.row;
    const std::int64_t offset = row_offset(t, work_.batch, work_.head_kv, key);
    store_rows<Element>(t, {offset, offset + 8 * t.row_stride}, {key < p_.shape.len_k, key + 8 < p_.shape.len_k},
                        values, factor, dim, p_.accumulate);
  }

  const TwoPassParameters& p_;
  DkDvShared<Tile>& shared_;
  const DkDvWork& work_;
  const KeyFragment f_;  // of warpgroup 0 for both: they have the same 64 keys
  DkDvWalk walk_;
  RingPosition<2> at_;  // in the rings of Q, dO and P alike
};

template <class Tile>
__global__ void __launch_bounds__(kTwoPassThreads, 1) two_pass_dkdv(const __grid_constant__ TwoPassParameters p) {
  extern __shared__ __align__(1024) std::byte shared_memory[];
  auto& shared = *reinterpret_cast<DkDvShared<Tile>*>(shared_memory);
  if (threadIdx.x == 0) {
    init_barriers(shared.q_barriers, 8);
    init_barriers(shared.dout_barriers, 8);
    for (int i = 0; i < DkDvShared<Tile>::kPSlots; ++i) {
      ptx::mbarrier_init(shared_address(&shared.p_barriers.full[i]), kWarpgroup);
      ptx::mbarrier_init(shared_address(&shared.p_barriers.empty[i]), kWarpgroup);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  const DkDvWork work = dkdv_work(p);
  ptx::griddepcontrol_wait();               // for lse and delta
  ptx::griddepcontrol_launch_dependents();  // only now: dQ's thread blocks then find them, and do not wait
  if (warp < 4) {
    ptx::decrease_registers<24>();
    if (warp == 0 && ptx::elect_one()) load_dkdv<Tile>(p, shared, work);
    return;
  }
  ptx::increase_registers<240>();
  DkDvWarpgroup<Tile> warpgroup(p, shared, work);
  if (warp < 8) {
    warpgroup.make_dv();
  } else {
    warpgroup.make_dk();
  }
}

}  // namespace fovea::cuda::sm90

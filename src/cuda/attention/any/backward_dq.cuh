// Backward for dQ: a thread block holds a tile of Q and dO and streams K/V tiles past it. It computes S and dP
// again, although backward_dkdv computes them too: so every dQ row has one owner. There are no atomics, and every run
// gives the same bits.
#pragma once

#include "cuda/attention/any/cluster_combine.cuh"
#include "cuda/attention/any/kv_pipeline.cuh"
#include "cuda/attention/any/mma_policy.cuh"
#include "cuda/attention/any/parameters.h"
#include "cuda/device/mask.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace fovea::cuda::any {

template <class Element, class Tile>
struct BackwardDqShared {
  using Mma = MmaPolicy<Element, Tile>;
  static constexpr int kPitch = Mma::Layout::kPitch, kStages = Tile::kShape.stages, kStream = Tile::kShape.stream;
  static constexpr bool kSwapBuffers = true;
  alignas(128) std::byte q[Tile::kShape.rows() * kPitch];
  std::byte dout[Tile::kShape.rows() * kPitch];
  std::byte streamed[2 * kStages][kStream * kPitch];
  float lse[Tile::kShape.rows()], delta[Tile::kShape.rows()];
  alignas(16) typename Mma::PStaging p_staging;
  const Element *keys, *values;  // of the sequence; in registers they would spill
};

// lse and delta of the tile's rows. Rows beyond the last query get lse = +inf, so their probabilities are 0.
template <int kRows>
__device__ __forceinline__ void load_lse_delta(float (&lse)[kRows], float (&delta)[kRows], const BackwardParameters& p,
                                               const QTileWork& work) {
  const std::int64_t sequence = static_cast<std::int64_t>(work.tile.batch) * p.shape.heads_q + work.tile.head;
  for (int i = static_cast<int>(threadIdx.x); i < kRows; i += static_cast<int>(blockDim.x)) {
    const bool inside = work.first_row + i < p.shape.len_q;
    const std::int64_t row = sequence * p.shape.len_q + work.first_row + i;
    lse[i] = inside ? p.lse[row] : kInfinity;
    delta[i] = inside ? p.delta[row] : 0.0f;
  }
}

// P = exp(Q K^T - lse) of one K/V tile, in place of Q K^T.
template <class Mma, int kRows>
__device__ __forceinline__ void probabilities(typename Mma::Scores& p, const float (&lse)[kRows], const Shape& s) {
#pragma unroll
  for (int i = 0; i < Mma::kRows; ++i) {
    const float row_lse = lse[Mma::row(i)];
#pragma unroll
    for (int j = 0; j < Mma::kScoreColumns; ++j) p[i][j] = Mma::Exp::probability(p[i][j], row_lse, s);
  }
}

// dS = P (dP - delta), in place of P; dP = dO V^T.
template <class Mma, int kRows>
__device__ __forceinline__ void score_gradients(typename Mma::Scores& p, const typename Mma::Scores& dp,
                                                const float (&delta)[kRows]) {
#pragma unroll
  for (int i = 0; i < Mma::kRows; ++i) {
    const float row_delta = delta[Mma::row(i)];
#pragma unroll
    for (int j = 0; j < Mma::kScoreColumns; ++j) p[i][j] *= dp[i][j] - row_delta;
  }
}

// One K/V tile: dS = P (dO V^T - delta), dQ += dS K. With a single stage, V arrives while P is computed, and the next K
// is loaded into V's buffer once all threads are done with V.
template <class Element, class Tile>
__device__ __forceinline__ void dq_step(BackwardDqShared<Element, Tile>& shared,
                                        KvPipeline<Element, Tile, BackwardDqShared<Element, Tile>>& pipeline,
                                        typename MmaPolicy<Element, Tile>::Accumulator& dq, const QTileWork& work,
                                        const Shape& s, int kv_tile) {
  using Mma = MmaPolicy<Element, Tile>;
  constexpr bool kSingleStage = Tile::kShape.stages == 1;
  typename Mma::Scores scores;
  Mma::multiply_transposed(scores, shared.q, pipeline.keys(kv_tile));
  probabilities<Mma>(scores, shared.lse, s);
  if (kSingleStage) {
    ptx::cp_async_wait<0>();
    __syncthreads();  // V has arrived
  }
  typename Mma::Scores dp;
  Mma::multiply_transposed(dp, shared.dout, pipeline.values(kv_tile));
  score_gradients<Mma>(scores, dp, shared.delta);
  if (kv_tile < work.unmasked.begin || kv_tile >= work.unmasked.end)
    apply_mask<Mma>(scores, s, work.first_row, kv_tile * Tile::kShape.stream, 0.0f);
  if (kSingleStage && kv_tile + 1 < work.kv_tiles.end) {
    __syncthreads();  // all threads are done with V
    pipeline.load_next_keys(kv_tile + 1);
  }
  Mma::multiply(dq, scores, pipeline.keys(kv_tile), shared.p_staging);
}

// The same with asynchronous MMAs, which overlap with the arithmetic between them.
template <class Element, class Tile>
__device__ __forceinline__ void dq_step_overlapped(BackwardDqShared<Element, Tile>& shared,
                                                   KvPipeline<Element, Tile, BackwardDqShared<Element, Tile>>& pipeline,
                                                   typename MmaPolicy<Element, Tile>::Accumulator& dq,
                                                   const QTileWork& work, const Shape& s, int kv_tile) {
  using Mma = MmaPolicy<Element, Tile>;
  static_assert(Tile::kShape.stages > 1);
  typename Mma::Scores scores, dp;
  Mma::issue_transposed(scores, shared.q, pipeline.keys(kv_tile));
  Mma::issue_transposed(dp, shared.dout, pipeline.values(kv_tile));
  if (kv_tile + 1 < work.kv_tiles.end) pipeline.load_next_tile(kv_tile + 1);
  Mma::template wait<1>(scores);
  probabilities<Mma>(scores, shared.lse, s);
  Mma::template wait<0>(dp);
  score_gradients<Mma>(scores, dp, shared.delta);
  if (kv_tile < work.unmasked.begin || kv_tile >= work.unmasked.end)
    apply_mask<Mma>(scores, s, work.first_row, kv_tile * Tile::kShape.stream, 0.0f);
  Mma::issue(dq, scores, pipeline.keys(kv_tile));
  Mma::template wait<0>(dq);
}

// Call at the end. This kernel may run concurrently with backward_dkdv, and a kernel that waits for this one must find
// both ended. So one thread block waits for backward_dkdv; the others exit and make room.
__device__ __forceinline__ void wait_in_first_cta() {
  if (ptx::cta_index() == 0) ptx::griddepcontrol_wait();
}

template <class Element, class Tile>
__global__ void __launch_bounds__(Tile::kShape.threads(), kCtasPerSm<Tile>)
    backward_dq(const __grid_constant__ BackwardParameters p) {
  using Mma = MmaPolicy<Element, Tile>;
  using Layout = typename Mma::Layout;
  constexpr TileShape kTile = Tile::kShape;
  extern __shared__ __align__(1024) std::byte shared_memory[];
  auto& shared = *reinterpret_cast<BackwardDqShared<Element, Tile>*>(shared_memory);
  ptx::griddepcontrol_launch_dependents();
  if (!p.preprocess_done) ptx::griddepcontrol_wait();
  const Shape& s = p.shape;
  const QTileWork work = q_tile_work<Tile>(p, ptx::cta_index());
  if (p.split.splits > 1 && !p.split.in_cluster && work.kv_tiles.begin >= work.kv_tiles.end)  // a split without work
    return wait_in_first_cta();
  const int batch = work.tile.batch, head_kv = key_head(work.tile.head, p.grid);
  KvPipeline<Element, Tile, BackwardDqShared<Element, Tile>> pipeline(
      shared, rows_of<Element>(p.k, batch, head_kv, s.len_k, s.dim_qk), work.kv_tiles.begin);
  pipeline.set_values(rows_of<Element>(p.v, batch, head_kv, s.len_k, s.dim_v), work.kv_tiles.begin);
  typename Mma::Accumulator dq;
  fill(dq, 0.0f);
  if (work.kv_tiles.begin < work.kv_tiles.end) {
    const auto gQ = rows_of<Element>(p.q, batch, work.tile.head, s.len_q, s.dim_qk);
    const auto gDout = rows_of<Element>(p.dout, batch, work.tile.head, s.len_q, s.dim_v);
    dispatch_chunked(gQ.whole_chunks && gDout.whole_chunks && pipeline.whole_chunks(), [&](auto whole_chunks) {
      load_tile<Layout, kTile.threads(), kTile.rows()>(whole_chunks, shared.q, gQ, work.first_row);
      load_tile<Layout, kTile.threads(), kTile.rows()>(whole_chunks, shared.dout, gDout, work.first_row);
      pipeline.load(whole_chunks, work.kv_tiles.begin);
    });
    load_lse_delta(shared.lse, shared.delta, p, work);
    if (threadIdx.x == 0) shared.keys = pipeline.k.data, shared.values = pipeline.v.data;
    if (s.negate) [[unlikely]]
      negate_loaded_tile<Element>(shared.q, sizeof(shared.q));
  }
#pragma unroll 1
  for (int kv_tile = work.kv_tiles.begin; kv_tile < work.kv_tiles.end; ++kv_tile) {
    const bool first = kv_tile == work.kv_tiles.begin;
    pipeline.wait(first);
    Mma::fence_shared_copies();
    __syncthreads();  // K (with several stages V too) has arrived, and all threads are done with the tile before
    if constexpr (Mma::kAsyncMma) {
      dq_step_overlapped<Element, Tile>(shared, pipeline, dq, work, s, kv_tile);
    } else {
      if (!pipeline.kKeepsAddresses) pipeline.k.data = shared.keys, pipeline.v.data = shared.values;
      if (kTile.stages > 1 && kv_tile + 1 < work.kv_tiles.end) pipeline.load_next_tile(kv_tile + 1);
      if (kTile.stages == 1 && !first) pipeline.load_next_values(kv_tile);  // arrives while P is computed
      dq_step<Element, Tile>(shared, pipeline, dq, work, s, kv_tile);
    }
  }
  static_assert(sizeof(shared) >= ClusterCombine<Mma>::kFloats * sizeof(float));
  const QTileWork recomputed = q_tile_work<Tile>(p, ptx::cta_index());  // takes no registers in the main loop
  write_gradient<Mma>(reinterpret_cast<float*>(&shared), dq, s.scale, p,
                      {p.dq, p.partial_dk_or_dq, s.heads_q, s.len_q, s.dim_qk}, recomputed.tile, recomputed.first_row);
  wait_in_first_cta();
}

template <class Element, class Tile>
KernelInstance backward_dq_instance() {
  using Shared = BackwardDqShared<Element, Tile>;
  static_assert(!Tile::kShape.warpgroup || (offsetof(Shared, dout) % ptx::kMatrixAlignment == 0 &&
                                            offsetof(Shared, streamed) % ptx::kMatrixAlignment == 0));
  return {reinterpret_cast<const void*>(&backward_dq<Element, Tile>), Tile::kShape, static_cast<int>(sizeof(Shared))};
}

}  // namespace fovea::cuda::any

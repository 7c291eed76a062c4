// Backward for dK and dV: a thread block holds a K/V tile and streams the Q and dO tiles of all query heads of the
// group past it. So every dK and dV row has one owner. Scores are computed transposed (rows are keys): P^T and dS^T are
// then already in registers as A operands of the second MMAs.
#pragma once

#include "cuda/attention/any/cluster_combine.cuh"
#include "cuda/attention/any/mma_policy.cuh"
#include "cuda/attention/any/parameters.h"
#include "cuda/attention/any/q_pipeline.cuh"
#include "cuda/device/mask.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace fovea::cuda::any {

// Above 128 columns the registers do not hold both dK and dV. Then two neighbouring thread blocks share a K/V tile:
// both compute the scores, one computes dV, the other dK.
template <class Tile>
constexpr bool kComputesBoth = Tile::kShape.dim <= 128;

template <class Mma, bool kBoth>
struct DkDvAccumulators {
  typename Mma::Accumulator dk, dv;
  __device__ __forceinline__ void clear() {
    fill(dk, 0.0f);
    fill(dv, 0.0f);
  }
};
template <class Mma>
struct DkDvAccumulators<Mma, false> {
  union {  // one of the two is in use
    typename Mma::Accumulator dk, dv;
  };
  __device__ __forceinline__ void clear() { fill(dk, 0.0f); }
};

template <class Element, class Tile>
struct BackwardDkDvShared {
  using Mma = MmaPolicy<Element, Tile>;
  static constexpr int kPitch = Mma::Layout::kPitch, kStages = Tile::kShape.stages, kStream = Tile::kShape.stream;
  alignas(128) std::byte k[Tile::kShape.rows() * kPitch];
  std::byte v[Tile::kShape.rows() * kPitch];
  std::byte streamed[2 * kStages][kStream * kPitch];  // Q and dO
  alignas(16) float lse_delta[kStages][2][kStream];   // [..][0]: lse, [..][1]: delta
  alignas(16) typename Mma::PStaging p_staging;
  DkDvWork work;  // for tiles that have no registers left for it
};

template <class Element, class Tile>
using QPipelineOf = QPipeline<Element, Tile, BackwardDkDvShared<Element, Tile>>;

template <class Tile, bool kBoth>
__device__ __forceinline__ DkDvWork dkdv_work(const BackwardParameters& p, unsigned cta) {
  constexpr TileShape kTile = Tile::kShape;
  constexpr unsigned kRoles = kBoth ? 1 : 2;
  const Shape& s = p.shape;
  const unsigned role = cta % kRoles;  // of two: 0 computes dK, 1 dV
  DkDvWork work{.tile = work_tile_of(cta / kRoles, p.split, p.grid)};
  work.first_row = work.tile.index * kTile.rows();
  work.computes_dk = p.dk.data != nullptr && (kBoth || role == 0);
  work.computes_dv = p.dv.data != nullptr && (kBoth || role == 1);
  const int last = min(work.first_row + kTile.rows(), s.len_k) - 1;
  work.q_tiles = tiles_of(queries_of_any(s, work.first_row, last), kTile.stream);
  const int count = (work.q_tiles.end - work.q_tiles.begin) * s.group;
  work.steps = split_range({0, work.computes_dk || work.computes_dv ? count : 0}, p.split, work.tile.split);
  const Range all = queries_of_all(s, work.first_row, last);
  // Rows beyond the last query need no mask: their lse is +inf, or their Q and dO are 0 (QPrefetch).
  work.unmasked = {(all.begin + kTile.stream - 1) / kTile.stream,
                   all.end == s.len_q ? work.q_tiles.end : all.end / kTile.stream};
  return work;
}

// Writes 0 to the masked pairs; rows are keys.
template <class Mma>
__device__ __forceinline__ void apply_mask_transposed(typename Mma::Scores& values, const Shape& s, int first_query,
                                                      int first_key) {
#pragma unroll
  for (int j = 0; j < Mma::kScoreColumns; ++j) {
    const Range visible = visible_keys(s, first_query + Mma::score_column(j));
#pragma unroll
    for (int i = 0; i < Mma::kRows; ++i) {
      const int key = first_key + Mma::row(i);
      if (key < visible.begin || key >= visible.end) values[i][j] = 0.0f;
    }
  }
}

// Loads the K tile. Only dP = V dO^T, and so dK, needs the V tile.
template <class Element, class Tile>
__device__ __forceinline__ void load_stationary(BackwardDkDvShared<Element, Tile>& shared, const BackwardParameters& p,
                                                const DkDvWork& work) {
  using Layout = typename MmaPolicy<Element, Tile>::Layout;
  constexpr TileShape kTile = Tile::kShape;
  const auto gK = rows_of<Element>(p.k, work.tile.batch, work.tile.head, p.shape.len_k, p.shape.dim_qk);
  const auto gV = rows_of<Element>(p.v, work.tile.batch, work.tile.head, p.shape.len_k, p.shape.dim_v);
  dispatch_chunked(gK.whole_chunks && gV.whole_chunks, [&](auto whole_chunks) {
    load_tile<Layout, kTile.threads(), kTile.rows()>(whole_chunks, shared.k, gK, work.first_row);
    if (work.computes_dk) load_tile<Layout, kTile.threads(), kTile.rows()>(whole_chunks, shared.v, gV, work.first_row);
  });
}

// P^T = exp(K Q^T - lse) of the Q tile from `first_query` on, in place of K Q^T.
template <class Mma, int kStream>
__device__ __forceinline__ void probabilities(typename Mma::Scores& p, const float (&lse)[kStream], bool masked,
                                              const DkDvWork& work, const Shape& s, int first_query) {
#pragma unroll
  for (int j = 0; j < Mma::kScoreColumns; ++j) {
    const float row_lse = lse[Mma::score_column(j)];
#pragma unroll
    for (int i = 0; i < Mma::kRows; ++i) p[i][j] = Mma::Exp::probability(p[i][j], row_lse, s);
  }
  if (masked) apply_mask_transposed<Mma>(p, s, first_query, work.first_row);
}

// dS^T = P^T (dP^T - delta), in place of P^T; dP^T = V dO^T. Masked again, since 0 times an infinite dP^T is NaN.
template <class Mma, int kStream>
__device__ __forceinline__ void score_gradients(typename Mma::Scores& p, const typename Mma::Scores& dp,
                                                const float (&delta)[kStream], bool masked, const DkDvWork& work,
                                                const Shape& s, int first_query) {
#pragma unroll
  for (int j = 0; j < Mma::kScoreColumns; ++j) {
    const float row_delta = delta[Mma::score_column(j)];
#pragma unroll
    for (int i = 0; i < Mma::kRows; ++i) p[i][j] *= dp[i][j] - row_delta;
  }
  if (masked) apply_mask_transposed<Mma>(p, s, first_query, work.first_row);
}

// One Q tile: P^T, dV += P^T dO, dS^T, dK += dS^T Q; the next tile is loaded meanwhile. All copies have arrived when
// the step starts, except dO with a single stage: it arrives while P^T is computed.
template <class Element, class Tile, bool kBoth>
__device__ __forceinline__ void dkdv_step(const QPipelineOf<Element, Tile>& pipeline,
                                          DkDvAccumulators<MmaPolicy<Element, Tile>, kBoth>& gradients, int step,
                                          bool has_next) {
  using Mma = MmaPolicy<Element, Tile>;
  constexpr bool kSingleStage = Tile::kShape.stages == 1;
  const DkDvWork& work = pipeline.work;
  const Shape& s = pipeline.p.shape;
  auto& shared = pipeline.shared;
  LseDelta next;
  if (kSingleStage && step != work.steps.begin) pipeline.load_dout(step);
  if (!kSingleStage && has_next) {
    pipeline.load_both(step + 1);
    next = pipeline.read_lse_delta(step + 1);
  }
  const int stage = step % Tile::kShape.stages, query = pipeline.first_query(step),
            q_tile = query / Tile::kShape.stream;
  const std::byte *q = pipeline.queries(step), *dout = pipeline.dout(step);
  const bool masked = q_tile < work.unmasked.begin || q_tile >= work.unmasked.end;
  typename Mma::Scores scores;
  Mma::multiply_transposed(scores, shared.k, q);
  probabilities<Mma>(scores, shared.lse_delta[stage][0], masked, work, s, query);
  if (kSingleStage) {
    ptx::cp_async_wait<0>();
    __syncthreads();  // dO has arrived
  }
  if (work.computes_dv) Mma::multiply(gradients.dv, scores, dout, shared.p_staging);
  if (work.computes_dk) {
    typename Mma::Scores dp;
    Mma::multiply_transposed(dp, shared.v, dout);
    score_gradients<Mma>(scores, dp, shared.lse_delta[stage][1], masked, work, s, query);
  }
  if (kSingleStage && has_next) {
    __syncthreads();  // all threads are done with dO, lse and delta
    pipeline.load_queries(step + 1);
    next = pipeline.read_lse_delta(step + 1);
  }
  if (work.computes_dk) Mma::multiply(gradients.dk, scores, q, shared.p_staging);
  if (has_next) pipeline.store_lse_delta(step + 1, next);
}

// All steps, one MMA after the other.
template <class Element, class Tile, bool kBoth>
__device__ __forceinline__ void dkdv_in_order(const QPipelineOf<Element, Tile>& pipeline,
                                              DkDvAccumulators<MmaPolicy<Element, Tile>, kBoth>& gradients) {
  const Range steps = pipeline.work.steps;
#pragma unroll 1
  for (int step = steps.begin; step < steps.end; ++step) {
    if (Tile::kShape.stages == 1 && step == steps.begin) {
      ptx::cp_async_wait<1>();  // the first dO is still in flight
    } else {
      ptx::cp_async_wait<0>();
    }
    MmaPolicy<Element, Tile>::fence_shared_copies();
    __syncthreads();  // all copies of this tile have arrived, and all threads are done with the tile before
    dkdv_step<Element, Tile, kBoth>(pipeline, gradients, step, step + 1 < steps.end);
  }
}

// All steps with asynchronous MMAs: V dO^T overlaps with computing P^T, and P^T dO with dS^T. Only if both gradients
// are wanted and all rows can be copied in whole 16-byte chunks.
template <class Element, class Tile>
__device__ __forceinline__ void dkdv_overlapped(const QPipelineOf<Element, Tile>& pipeline,
                                                DkDvAccumulators<MmaPolicy<Element, Tile>, true>& gradients) {
  using Mma = MmaPolicy<Element, Tile>;
  const DkDvWork& work = pipeline.work;
  const Shape& s = pipeline.p.shape;
  auto& shared = pipeline.shared;
  QPrefetch<Element, Tile, BackwardDkDvShared<Element, Tile>> ahead(pipeline, work.steps.begin);
  const int end = work.steps.end;
#pragma unroll 1
  for (int step = work.steps.begin; step < end; ++step) {
    ptx::cp_async_wait<0>();
    Mma::fence_shared_copies();
    __syncthreads();  // all copies of this tile have arrived, and all threads are done with the tile before
    const int stage = step % Tile::kShape.stages, query = ahead.query, q_tile = query / Tile::kShape.stream;
    const std::byte *q = pipeline.queries(step), *dout = pipeline.dout(step);
    typename Mma::Scores scores, dp;
    Mma::issue_transposed(scores, shared.k, q);
    Mma::issue_transposed(dp, shared.v, dout);
    ahead.advance(pipeline, step + 1);
    if (step + 1 < end) ahead.load(pipeline, step + 1);
    const bool masked = q_tile < work.unmasked.begin || q_tile >= work.unmasked.end;
    Mma::template wait<1>(scores);
    probabilities<Mma>(scores, shared.lse_delta[stage][0], masked, work, s, query);
    Mma::issue(gradients.dv, scores, dout);
    Mma::template wait<1>(dp);
    score_gradients<Mma>(scores, dp, shared.lse_delta[stage][1], masked, work, s, query);
    Mma::template wait<0>(gradients.dv);
    Mma::issue(gradients.dk, scores, q);
    Mma::template wait<0>(gradients.dk);
  }
}

template <class Element, class Tile>
__global__ void __launch_bounds__(Tile::kShape.threads(), kCtasPerSm<Tile>)
    backward_dkdv(const __grid_constant__ BackwardParameters p) {
  using Mma = MmaPolicy<Element, Tile>;
  constexpr TileShape kTile = Tile::kShape;
  constexpr bool kBoth = kComputesBoth<Tile>;
  extern __shared__ __align__(1024) std::byte shared_memory[];
  auto& shared = *reinterpret_cast<BackwardDkDvShared<Element, Tile>*>(shared_memory);
  const Shape& s = p.shape;
  const DkDvWork own = dkdv_work<Tile, kBoth>(p, ptx::cta_index());
  constexpr bool kWorkInShared = sizeof(Element) == 4 || kTile.warpgroup;
  if (kWorkInShared) {
    if (threadIdx.x == 0) shared.work = own;
    __syncthreads();
  }
  const DkDvWork& work = kWorkInShared ? shared.work : own;
  const QPipelineOf<Element, Tile> pipeline{p, work, shared};
  if (work.steps.begin < work.steps.end) {
    load_stationary(shared, p, work);
    if (kTile.stages == 1) {
      pipeline.load_queries(work.steps.begin);
      pipeline.load_dout(work.steps.begin);
    } else {
      pipeline.load_both(work.steps.begin);
    }
  }
  // lse and delta come from backward_preprocess. It was launched without PDL, so all earlier work has ended too.
  ptx::griddepcontrol_wait();
  // Only now: once backward_dq has started, lse and delta are complete (preprocess_done).
  ptx::griddepcontrol_launch_dependents();
  if (p.split.splits > 1 && !p.split.in_cluster && work.steps.begin >= work.steps.end) return;  // a split without work
  DkDvAccumulators<Mma, kBoth> gradients;
  gradients.clear();
  if (work.steps.begin < work.steps.end) {
    pipeline.store_lse_delta(work.steps.begin, pipeline.read_lse_delta(work.steps.begin));
    if (s.negate) [[unlikely]]
      negate_loaded_tile<Element>(shared.k, sizeof(shared.k));
  }
  if constexpr (Mma::kAsyncMma) {
    if (work.computes_dk && work.computes_dv && pipeline.whole_chunks()) {
      dkdv_overlapped<Element, Tile>(pipeline, gradients);
    } else {
      dkdv_in_order<Element, Tile, kBoth>(pipeline, gradients);
    }
  } else {
    dkdv_in_order<Element, Tile, kBoth>(pipeline, gradients);
  }
  const DkDvWork recomputed = dkdv_work<Tile, kBoth>(p, ptx::cta_index());  // takes no registers in the main loop
  static_assert(sizeof(shared) >= ClusterCombine<Mma>::kFloats * sizeof(float));
  auto* values = reinterpret_cast<float*>(&shared);
  const auto write = [&](const typename Mma::Accumulator& acc, float factor, const GradientOutput& to) {
    write_gradient<Mma>(values, acc, factor, p, to, recomputed.tile, recomputed.first_row);
  };
  if (recomputed.computes_dk) write(gradients.dk, s.scale, {p.dk, p.partial_dk_or_dq, s.heads_kv, s.len_k, s.dim_qk});
  if (recomputed.computes_dv) write(gradients.dv, 1.0f, {p.dv, p.partial_dv, s.heads_kv, s.len_k, s.dim_v});
}

template <class Element, class Tile>
KernelInstance backward_dkdv_instance() {
  using Shared = BackwardDkDvShared<Element, Tile>;
  static_assert(!Tile::kShape.warpgroup || (offsetof(Shared, v) % ptx::kMatrixAlignment == 0 &&
                                            offsetof(Shared, streamed) % ptx::kMatrixAlignment == 0));
  return {reinterpret_cast<const void*>(&backward_dkdv<Element, Tile>), Tile::kShape, static_cast<int>(sizeof(Shared)),
          !kComputesBoth<Tile>};
}

}  // namespace fovea::cuda::any

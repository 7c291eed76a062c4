// Forward: a thread block holds a Q tile and streams K/V tiles past it, with the online softmax of FlashAttention-2
// (Dao, arXiv 2307.08691, algorithm 1). Takes every problem of the contract up to head dimension 256. Schedule and
// shared-memory map: docs/kernels/cuda_any.md.
#pragma once

#include "cuda/attention/any/forward_epilogue.cuh"
#include "cuda/attention/any/kv_pipeline.cuh"
#include "cuda/attention/any/mma_policy.cuh"
#include "cuda/attention/any/parameters.h"
#include "cuda/device/mask.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace fovea::cuda::any {

template <class Element, class Tile>
struct ForwardShared {
  using Mma = MmaPolicy<Element, Tile>;
  static constexpr int kPitch = Mma::Layout::kPitch;
  static constexpr bool kSwapBuffers = false;
  alignas(128) std::byte q[Tile::kShape.rows() * kPitch];
  std::byte streamed[2 * Tile::kShape.stages][Tile::kShape.streamed_rows() * kPitch];
  alignas(16) typename Mma::PStaging p_staging;
  // Kept here instead of in registers through the main loop.
  const Element *keys, *values;  // of the sequence
  int first_row;
  Range unmasked;
  WorkTile tile;
};

// Online softmax of one tile: updates each row's maximum, rescales the accumulator, and turns scores into probabilities
// relative to the maximum so far.
template <class Mma>
__device__ __forceinline__ void softmax_tile(typename Mma::Scores& scores, typename Mma::Accumulator& acc,
                                             RowState (&rows)[Mma::kRows], const Shape& s) {
  using Exp = typename Mma::Exp;
#pragma unroll
  for (int i = 0; i < Mma::kRows; ++i) {
    float maximum = scores[i][0];
#pragma unroll
    for (int j = 1; j < Mma::kScoreColumns; ++j) maximum = fmaxf(maximum, scores[i][j]);
    const float factor = update_max<Exp>(rows[i], lanes_max<Mma::kLanes, Mma::kLaneStep>(maximum), s);
    const float row_max = finite_max(rows[i].maximum);
#pragma unroll
    for (int j = 0; j < Mma::kScoreColumns; ++j) {
      scores[i][j] = Exp::scaled(scores[i][j] - row_max, s);
      rows[i].sum += scores[i][j];
    }
#pragma unroll
    for (int j = 0; j < Mma::kColumns; ++j) acc[i][j] *= factor;
  }
}

// Writes the finished Q tile. stash_work has put tile and first_row into shared memory.
template <class Element, class Tile>
__device__ __forceinline__ void write_tile(const ForwardParameters& p,
                                           typename MmaPolicy<Element, Tile>::Accumulator& acc,
                                           RowState (&rows)[MmaPolicy<Element, Tile>::kRows],
                                           ForwardShared<Element, Tile>& shared) {
  using Mma = MmaPolicy<Element, Tile>;
  using Shared = ForwardShared<Element, Tile>;
  constexpr TileShape kTile = Tile::kShape;
  __syncthreads();  // all threads are done with K and V
  const WorkTile tile = shared.tile;
  const int first_row = shared.first_row;
  auto* values = reinterpret_cast<float*>(&shared);
  if constexpr (kTile.split_warps > 1) {
    static_assert(offsetof(Shared, keys) >=
                  kTile.split_warps * kTile.rows() * (kCombinePitch<Mma> * sizeof(float) + sizeof(RowState)));
    combine_warps_and_write<Mma>(p, tile, first_row, acc, rows, values);
  } else if (p.split.in_cluster) {
    static_assert(offsetof(Shared, keys) >= kTile.rows() * (kCombinePitch<Mma> * sizeof(float) + sizeof(RowState)));
    combine_cluster_and_write<Mma>(p, tile, first_row, acc, rows, values);
  } else {
    write_forward<Mma>(p, tile, first_row, acc, rows);
  }
}

// Saves what write_tile and the main loop read later, so that it takes no registers.
template <class Element, class Tile, class Pipeline>
__device__ __forceinline__ void stash_work(ForwardShared<Element, Tile>& shared, const QTileWork& work,
                                           const Pipeline& pipeline) {
  if (threadIdx.x != 0) return;
  if (!Pipeline::kKeepsAddresses) shared.keys = pipeline.k.data, shared.values = pipeline.v.data;
  shared.first_row = work.first_row, shared.tile = work.tile, shared.unmasked = work.unmasked;
}

// The first key of this warp in every K/V tile.
template <class Tile>
__device__ __forceinline__ int first_warp_key() {
  return Tile::kShape.split_warps > 1 ? warp_index() % Tile::kShape.split_warps * Tile::kShape.stream : 0;
}

template <class Element, class Tile>
__global__ void __launch_bounds__(Tile::kShape.threads(), Tile::kShape.ctas_per_sm)
    forward(const __grid_constant__ ForwardParameters p) {
  using Mma = MmaPolicy<Element, Tile>;
  using Layout = typename Mma::Layout;
  constexpr TileShape kTile = Tile::kShape;
  extern __shared__ __align__(1024) std::byte shared_memory[];
  auto& shared = *reinterpret_cast<ForwardShared<Element, Tile>*>(shared_memory);
  const Shape& s = p.shape;
  const QTileWork work = q_tile_work<Tile>(p, ptx::cta_index());
  ptx::griddepcontrol_launch_dependents();
  if (p.split.splits > 1 && !p.split.in_cluster && work.kv_tiles.begin >= work.kv_tiles.end)
    return;  // a split without work; in a cluster it must still reach the barriers
  const int batch = work.tile.batch, head_kv = key_head(work.tile.head, p.grid);
  KvPipeline<Element, Tile, ForwardShared<Element, Tile>> pipeline(
      shared, rows_of<Element>(p.k, batch, head_kv, s.len_k, s.dim_qk), work.kv_tiles.begin);
  const int warp_key = first_warp_key<Tile>();

  typename Mma::Accumulator acc;
  RowState rows[Mma::kRows];
  fill(acc, 0.0f);
  const bool has_work = work.kv_tiles.begin < work.kv_tiles.end;
  if (has_work) {
    const auto gQ = rows_of<Element>(p.q, batch, work.tile.head, s.len_q, s.dim_qk);
    dispatch_chunked(gQ.whole_chunks && pipeline.k.whole_chunks, [&](auto whole_chunks) {
      load_tile<Layout, kTile.threads(), kTile.rows()>(whole_chunks, shared.q, gQ, work.first_row);
      pipeline.load_keys(whole_chunks, work.kv_tiles.begin);
    });
  }
  pipeline.set_values(rows_of<Element>(p.v, batch, head_kv, s.len_k, s.dim_v), work.kv_tiles.begin);
  stash_work(shared, work, pipeline);
  if (has_work) {
    dispatch_chunked(pipeline.v.whole_chunks, [&](auto whole) { pipeline.load_values(whole, work.kv_tiles.begin); });
    asm volatile("" ::"l"(p.out.row_stride), "l"(p.lse.row_stride));  // load the epilogue's parameters meanwhile
    if (s.negate) [[unlikely]]
      negate_loaded_tile<Element>(shared.q, sizeof(shared.q));
  }
#pragma unroll 1
  for (int kv_tile = work.kv_tiles.begin; kv_tile < work.kv_tiles.end; ++kv_tile) {
    const bool first = kv_tile == work.kv_tiles.begin, last = kv_tile + 1 == work.kv_tiles.end;
    pipeline.wait(first);
    Mma::fence_shared_copies();
    __syncthreads();  // K (with several stages V too) has arrived, and all threads are done with the tile before
    if (!pipeline.kKeepsAddresses) pipeline.k.data = shared.keys, pipeline.v.data = shared.values;
    typename Mma::Scores scores;
    multiply_overlapped<Mma>(scores, shared.q, pipeline.keys(kv_tile) + warp_key * Layout::kPitch,
                             [&] { pipeline.load_during_scores(kv_tile, first, last); });
    pipeline.load_after_scores(kv_tile, last);
    if (kv_tile < shared.unmasked.begin || kv_tile >= shared.unmasked.end)
      apply_mask<Mma>(scores, s, work.first_row, kv_tile * kTile.streamed_rows() + warp_key, -kInfinity);
    softmax_tile<Mma>(scores, acc, rows, s);
    if (kTile.stages == 1) {
      pipeline.wait_for_values(last);
      Mma::fence_shared_copies();
      __syncthreads();  // V has arrived, and all threads are done with K
      pipeline.load_after_softmax(kv_tile, last);
    }
    Mma::multiply(acc, scores, pipeline.values(kv_tile) + warp_key * Layout::kPitch, shared.p_staging);
  }
  write_tile<Element, Tile>(p, acc, rows, shared);
}

template <class Element, class Tile>
KernelInstance forward_instance() {
  using Shared = ForwardShared<Element, Tile>;
  static_assert(!Tile::kShape.warpgroup || offsetof(Shared, streamed) % ptx::kMatrixAlignment == 0);
  return {reinterpret_cast<const void*>(&forward<Element, Tile>), Tile::kShape, static_cast<int>(sizeof(Shared))};
}

}  // namespace fovea::cuda::any

// Backward for dq: a block of threads keeps a tile of queries with their dout and lets the keys and values pass by.
// Computes scores and dp a second time rather than adding to dq from every block of keys: no atomics, no order.
#pragma once

#include "cuda/attention/any/cluster_join.cuh"
#include "cuda/attention/any/core_of.cuh"
#include "cuda/attention/any/parameters.h"
#include "cuda/attention/any/passing_blocks.cuh"
#include "cuda/device/mask.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace fovea::cuda::any {

template <class Element, class Tile>
struct BackwardQueriesShared {
  using Core = CoreOf<Element, Tile>;
  static constexpr int kPitch = Core::Layout::kPitch, kStages = Tile::kShape.stages, kStream = Tile::kShape.stream;
  static constexpr bool kExchange = true;
  alignas(128) std::byte q[Tile::kShape.rows() * kPitch];
  std::byte dout[Tile::kShape.rows() * kPitch];
  std::byte passing[2 * kStages][kStream * kPitch];
  float lse[Tile::kShape.rows()], delta[Tile::kShape.rows()];
  alignas(16) typename Core::Stage stage;
  Element *keys, *values;  // first elements of the sequence: in registers they would be spilled
};

struct QueriesUnit {
  Place place;
  int first_row;
  Range blocks, free;
};

template <class Tile>
__device__ __forceinline__ QueriesUnit queries_unit(const BackwardParameters& p, unsigned block) {
  constexpr TileShape kTile = Tile::kShape;
  const Shape& s = p.shape;
  QueriesUnit u{.place = place_of(block, p.split, p.grid)};
  u.first_row = (p.grid.tiles - 1 - u.place.tile) * kTile.rows();  // the longest rows of a causal mask first
  const int last = min(u.first_row + kTile.rows(), s.len_q) - 1;
  u.blocks = part_of(blocks_of(keys_of_any(s, u.first_row, last), kTile.stream), p.split, u.place.part);
  const Range all = keys_of_all(s, u.first_row, last);
  u.free = {(all.begin + kTile.stream - 1) / kTile.stream, all.end / kTile.stream};
  return u;
}

// Row statistics of the tile; queries outside get an lse of +inf, that is probabilities of 0.
template <int kRows>
__device__ __forceinline__ void load_statistics(float (&lse)[kRows], float (&delta)[kRows], const BackwardParameters& p,
                                                const QueriesUnit& u) {
  const std::int64_t sequence = static_cast<std::int64_t>(u.place.batch) * p.shape.heads_q + u.place.head;
  for (int i = static_cast<int>(threadIdx.x); i < kRows; i += static_cast<int>(blockDim.x)) {
    const bool inside = u.first_row + i < p.shape.len_q;
    const std::int64_t row = sequence * p.shape.len_q + u.first_row + i;
    lse[i] = inside ? p.lse[row] : kInfinity;
    delta[i] = inside ? p.delta[row] : 0.0f;
  }
}

// P = exp(Q K^T - lse) of one block of keys, in the place of Q K^T.
template <class Core, int kRows>
__device__ __forceinline__ void probabilities(typename Core::Scores& p, const float (&lse)[kRows], const Shape& s) {
#pragma unroll
  for (int i = 0; i < Core::kRows; ++i) {
    const float row_lse = lse[Core::row(i)];
#pragma unroll
    for (int j = 0; j < Core::kScoreColumns; ++j) p[i][j] = Core::Weights::probability(p[i][j], row_lse, s);
  }
}

// dS = P (dP - delta), in the place of P; dP = dout V^T.
template <class Core, int kRows>
__device__ __forceinline__ void score_gradients(typename Core::Scores& p, const typename Core::Scores& dp,
                                                const float (&delta)[kRows]) {
#pragma unroll
  for (int i = 0; i < Core::kRows; ++i) {
    const float row_delta = delta[Core::row(i)];
#pragma unroll
    for (int j = 0; j < Core::kScoreColumns; ++j) p[i][j] *= dp[i][j] - row_delta;
  }
}

// One block of keys: dS = P (dout V^T - delta), dq += dS K. The values of a single stage arrive meanwhile, and its next
// keys are asked for as soon as nobody needs the values any more.
template <class Element, class Tile>
__device__ __forceinline__ void queries_step(
    BackwardQueriesShared<Element, Tile>& shared,
    PassingBlocks<Element, Tile, BackwardQueriesShared<Element, Tile>>& passing,
    typename CoreOf<Element, Tile>::Results& dq, const QueriesUnit& u, const Shape& s, int block) {
  using Core = CoreOf<Element, Tile>;
  constexpr bool kSingle = Tile::kShape.stages == 1;
  typename Core::Scores scores;
  Core::multiply_transposed(scores, shared.q, passing.keys(block));
  probabilities<Core>(scores, shared.lse, s);
  if (kSingle) {
    ptx::cp_async_wait<0>();
    __syncthreads();  // the values have arrived for everyone
  }
  typename Core::Scores dp;
  Core::multiply_transposed(dp, shared.dout, passing.values(block));
  score_gradients<Core>(scores, dp, shared.delta);
  if (block < u.free.begin || block >= u.free.end)
    fill_hidden<Core>(scores, s, u.first_row, block * Tile::kShape.stream, 0.0f);
  if (kSingle && block + 1 < u.blocks.end) {
    __syncthreads();  // everyone is done with the values
    passing.load_next_keys(block + 1);
  }
  Core::multiply(dq, scores, passing.keys(block), shared.stage);
}

// The same where products run beside the arithmetic between them.
template <class Element, class Tile>
__device__ __forceinline__ void queries_step_beside(
    BackwardQueriesShared<Element, Tile>& shared,
    PassingBlocks<Element, Tile, BackwardQueriesShared<Element, Tile>>& passing,
    typename CoreOf<Element, Tile>::Results& dq, const QueriesUnit& u, const Shape& s, int block) {
  using Core = CoreOf<Element, Tile>;
  static_assert(Tile::kShape.stages > 1);
  typename Core::Scores scores, dp;
  Core::begin_transposed(scores, shared.q, passing.keys(block));
  Core::begin_transposed(dp, shared.dout, passing.values(block));
  if (block + 1 < u.blocks.end) passing.load_next(block + 1);
  Core::template wait<1>(scores);
  probabilities<Core>(scores, shared.lse, s);
  Core::template wait<0>(dp);
  score_gradients<Core>(scores, dp, shared.delta);
  if (block < u.free.begin || block >= u.free.end)
    fill_hidden<Core>(scores, s, u.first_row, block * Tile::kShape.stream, 0.0f);
  Core::begin(dq, scores, passing.keys(block));
  Core::template wait<0>(dq);
}

// At the end: where this kernel runs beside the one for dk and dv, who waits for it waits for both. One block of
// threads sees to that, the others leave their places to those that have work.
__device__ __forceinline__ void let_later_kernels_wait_for_all() {
  if (ptx::block_index() == 0) ptx::wait_for_earlier_kernels();
}

template <class Element, class Tile>
__global__ void __launch_bounds__(Tile::kShape.threads(), kResident<Tile>)
    backward_queries(const __grid_constant__ BackwardParameters p) {
  using Core = CoreOf<Element, Tile>;
  using Layout = typename Core::Layout;
  constexpr TileShape kTile = Tile::kShape;
  extern __shared__ __align__(1024) std::byte shared_memory[];
  auto& shared = *reinterpret_cast<BackwardQueriesShared<Element, Tile>*>(shared_memory);
  ptx::let_next_kernel_begin();
  if (!p.statistics_are_ready) ptx::wait_for_earlier_kernels();
  const Shape& s = p.shape;
  const QueriesUnit u = queries_unit<Tile>(p, ptx::block_index());
  if (p.split.splits > 1 && !p.split.in_cluster && u.blocks.begin >= u.blocks.end)  // a part without work
    return let_later_kernels_wait_for_all();
  const int batch = u.place.batch, head_kv = key_head(u.place.head, p.grid);
  PassingBlocks<Element, Tile, BackwardQueriesShared<Element, Tile>> passing(
      shared, rows_of<Element>(p.k, batch, head_kv, s.len_k, s.dim_qk), u.blocks.begin);
  passing.add_values(rows_of<Element>(p.v, batch, head_kv, s.len_k, s.dim_v), u.blocks.begin);
  typename Core::Results dq;
  fill(dq, 0.0f);
  if (u.blocks.begin < u.blocks.end) {
    const auto gQ = rows_of<Element>(p.q, batch, u.place.head, s.len_q, s.dim_qk);
    const auto gDout = rows_of<Element>(p.dout, batch, u.place.head, s.len_q, s.dim_v);
    load_by(gQ.vector && gDout.vector && passing.vector(), [&](auto chunks) {
      load_tile<Layout, kTile.threads(), kTile.rows()>(chunks, shared.q, gQ, u.first_row);
      load_tile<Layout, kTile.threads(), kTile.rows()>(chunks, shared.dout, gDout, u.first_row);
      passing.load(chunks, u.blocks.begin);
    });
    load_statistics(shared.lse, shared.delta, p, u);
    if (threadIdx.x == 0) shared.keys = passing.k.data, shared.values = passing.v.data;
    if (s.negate) [[unlikely]] {
      ptx::cp_async_wait<0>();
      __syncthreads();
      negate_tile<Element>(shared.q, sizeof(shared.q));
    }
  }
#pragma unroll 1
  for (int block = u.blocks.begin; block < u.blocks.end; ++block) {
    const bool first = block == u.blocks.begin;
    passing.wait(first);
    Core::publish_copies();
    __syncthreads();  // this block has arrived for everyone, and everyone is done with the one before
    if constexpr (Core::kAsynchronous) {
      queries_step_beside<Element, Tile>(shared, passing, dq, u, s, block);
    } else {
      if (!kTile.warpgroup) passing.k.data = shared.keys, passing.v.data = shared.values;
      if (kTile.stages > 1 && block + 1 < u.blocks.end) passing.load_next(block + 1);
      if (kTile.stages == 1 && !first) passing.load_next_values(block);  // arrive while probabilities are made
      queries_step<Element, Tile>(shared, passing, dq, u, s, block);
    }
  }
  static_assert(sizeof(shared) >= ClusterJoin<Core>::kFloats * sizeof(float));
  const QueriesUnit again = queries_unit<Tile>(p, ptx::block_index());
  write_gradient<Core>(reinterpret_cast<float*>(&shared), dq, s.scale, p,
                       {p.dq, p.partial_first, s.heads_q, s.len_q, s.dim_qk}, again.place, again.first_row);
  let_later_kernels_wait_for_all();
}

template <class Element, class Tile>
KernelInstance backward_queries_instance() {
  using Shared = BackwardQueriesShared<Element, Tile>;
  return {reinterpret_cast<const void*>(&backward_queries<Element, Tile>), Tile::kShape,
          static_cast<int>(sizeof(Shared))};
}

}  // namespace fovea::cuda::any

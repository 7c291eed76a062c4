// Backward for dq: a block of threads keeps a tile of queries with their dout and lets the keys and values pass by.
// Computes scores and dp a second time rather than adding to dq from every block of keys: no atomics, no order.
#pragma once

#include "cuda/any/cluster_join.cuh"
#include "cuda/any/core_of.cuh"
#include "cuda/any/parameters.h"
#include "cuda/device/mask.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace fovea::cuda::any {

template <class Element, class Tile>
struct BackwardQueriesShared {
  using Core = CoreOf<Element, Tile>;
  static constexpr int kPitch = Core::Layout::kPitch, kStages = Tile::kShape.stages, kStream = Tile::kShape.stream;
  alignas(128) std::byte q[Tile::kShape.rows() * kPitch];
  std::byte dout[Tile::kShape.rows() * kPitch];
  std::byte k[kStages][kStream * kPitch];
  std::byte v[kStages][kStream * kPitch];
  float lse[Tile::kShape.rows()], delta[Tile::kShape.rows()];
  alignas(16) typename Core::Stage stage;
  Element *keys, *values;  // first elements of the sequence: in registers they would be spilled
};

struct QueriesUnit {
  int batch, head, split, first_row;
  Range blocks, free;
};

template <class Tile>
__device__ __forceinline__ QueriesUnit queries_unit(const BackwardParameters& p, unsigned block) {
  constexpr TileShape kTile = Tile::kShape;
  const Shape& s = p.shape;
  const unsigned tiles = (static_cast<unsigned>(s.len_q) + kTile.rows() - 1) / kTile.rows();
  const unsigned splits = static_cast<unsigned>(p.split.splits);
  const unsigned tile = block / splits % tiles, sequence = block / splits / tiles;
  QueriesUnit u;
  u.split = static_cast<int>(block % splits);
  u.batch = static_cast<int>(sequence) / s.heads_q;
  u.head = static_cast<int>(sequence) % s.heads_q;
  u.first_row = static_cast<int>(tiles - 1 - tile) * kTile.rows();  // the longest rows of a causal mask first
  const int last = min(u.first_row + kTile.rows(), s.len_q) - 1;
  u.blocks = blocks_of(keys_of_any(s, u.first_row, last), kTile.stream);
  if (splits > 1) u.blocks = part_of(u.blocks, p.split, u.split);
  const Range all = keys_of_all(s, u.first_row, last);
  u.free = {(all.begin + kTile.stream - 1) / kTile.stream, all.end / kTile.stream};
  return u;
}

template <class Core>
__device__ __forceinline__ void mask_gradients(typename Core::Scores& values, const Shape& s, int first_query,
                                               int first_key) {
#pragma unroll
  for (int i = 0; i < Core::kRows; ++i) {
    const Range visible = visible_keys(s, first_query + Core::row(i));
#pragma unroll
    for (int j = 0; j < Core::kScoreColumns; ++j) {
      const int key = first_key + Core::score_column(j);
      if (key < visible.begin || key >= visible.end) values[i][j] = 0.0f;
    }
  }
}

// Row statistics of the tile; queries outside get an lse of +inf, that is probabilities of 0.
template <int kRows>
__device__ __forceinline__ void load_statistics(float (&lse)[kRows], float (&delta)[kRows], const BackwardParameters& p,
                                                const QueriesUnit& u) {
  const std::int64_t sequence = static_cast<std::int64_t>(u.batch) * p.shape.heads_q + u.head;
  for (int i = static_cast<int>(threadIdx.x); i < kRows; i += static_cast<int>(blockDim.x)) {
    const bool inside = u.first_row + i < p.shape.len_q;
    const std::int64_t row = sequence * p.shape.len_q + u.first_row + i;
    lse[i] = inside ? p.lse[row] : kInfinity;
    delta[i] = inside ? p.delta[row] : 0.0f;
  }
}

// One block of keys: dS = P (dout V^T - delta), dq += dS K.
template <class Element, class Tile>
__device__ __forceinline__ void queries_step(BackwardQueriesShared<Element, Tile>& shared, int stage,
                                             typename CoreOf<Element, Tile>::Results& dq, const QueriesUnit& u,
                                             const Shape& s, int block) {
  using Core = CoreOf<Element, Tile>;
  typename Core::Scores p, ds;
  Core::multiply_transposed(p, shared.q, shared.k[stage]);
#pragma unroll
  for (int i = 0; i < Core::kRows; ++i) {
    const float lse = shared.lse[Core::row(i)];
#pragma unroll
    for (int j = 0; j < Core::kScoreColumns; ++j) p[i][j] = Core::Weights::probability(p[i][j], lse, s);
  }
  Core::multiply_transposed(ds, shared.dout, shared.v[stage]);
#pragma unroll
  for (int i = 0; i < Core::kRows; ++i) {
    const float delta = shared.delta[Core::row(i)];
#pragma unroll
    for (int j = 0; j < Core::kScoreColumns; ++j) ds[i][j] = p[i][j] * (ds[i][j] - delta);
  }
  if (block < u.free.begin || block >= u.free.end)
    mask_gradients<Core>(ds, s, u.first_row, block * Tile::kShape.stream);
  Core::multiply(dq, ds, shared.k[stage], shared.stage);
}

template <class Core>
__device__ __forceinline__ void write_dq(const BackwardParameters& p, const QueriesUnit& u,
                                         const typename Core::Results& dq, float* values) {
  const Shape& s = p.shape;
  if (p.split.in_cluster)
    return join_cluster_gradient<Core>(values, dq, s.scale, p.split, u.split, p.dq,
                                       u.batch * p.dq.batch + u.head * p.dq.head, u.first_row, s.len_q, s.dim_qk,
                                       p.accumulate);
#pragma unroll
  for (int i = 0; i < Core::kRows; ++i) {
    const int query = u.first_row + Core::row(i);
    if (query >= s.len_q) continue;
    if (p.split.splits > 1) {
      const std::int64_t row =
          ((static_cast<std::int64_t>(u.split) * s.batch + u.batch) * s.heads_q + u.head) * s.len_q + query;
      store_partial_row<Core>(p.partial_first + row * s.dim_qk, s.dim_qk, dq[i], s.scale);
    } else {
      store_row<Core>(p.dq, u.batch * p.dq.batch + u.head * p.dq.head + query * p.dq.row, s.dim_qk, p.accumulate, dq[i],
                      s.scale);
    }
  }
}

template <class Element, class Tile>
__global__ void __launch_bounds__(Tile::kShape.threads(), Tile::kShape.resident)
    backward_queries(const __grid_constant__ BackwardParameters p) {
  using Core = CoreOf<Element, Tile>;
  using Layout = typename Core::Layout;
  constexpr TileShape kTile = Tile::kShape;
  extern __shared__ __align__(128) std::byte shared_memory[];
  auto& shared = *reinterpret_cast<BackwardQueriesShared<Element, Tile>*>(shared_memory);
  ptx::let_next_kernel_begin();
  if (!p.statistics_are_ready) ptx::wait_for_earlier_kernels();
  const Shape& s = p.shape;
  const QueriesUnit u = queries_unit<Tile>(p, ptx::block_index());
  if (p.split.splits > 1 && !p.split.in_cluster && u.blocks.begin >= u.blocks.end) {  // a part without work
    ptx::wait_for_earlier_kernels();
    return;
  }
  auto gK = rows_of<Element>(p.k, u.batch, u.head / s.group, s.len_k, s.dim_qk);
  auto gV = rows_of<Element>(p.v, u.batch, u.head / s.group, s.len_k, s.dim_v);
  const auto load_block = [&](int block) {
    const int stage = block % kTile.stages;
    load_tile<Layout, kTile.threads(), kTile.stream>(shared.k[stage], gK, block * kTile.stream);
    load_tile<Layout, kTile.threads(), kTile.stream>(shared.v[stage], gV, block * kTile.stream);
    ptx::cp_async_commit();
  };

  typename Core::Results dq;
  fill(dq, 0.0f);
  if (u.blocks.begin < u.blocks.end) {
    const auto gQ = rows_of<Element>(p.q, u.batch, u.head, s.len_q, s.dim_qk);
    const auto gDout = rows_of<Element>(p.dout, u.batch, u.head, s.len_q, s.dim_v);
    load_tile<Layout, kTile.threads(), kTile.rows()>(shared.q, gQ, u.first_row);
    load_tile<Layout, kTile.threads(), kTile.rows()>(shared.dout, gDout, u.first_row);
    load_block(u.blocks.begin);
    load_statistics(shared.lse, shared.delta, p, u);
    if (threadIdx.x == 0) shared.keys = gK.data, shared.values = gV.data;
    if (s.negate) {
      ptx::cp_async_wait<0>();
      __syncthreads();
      negate_tile<Element>(shared.q, sizeof(shared.q));
    }
  }
#pragma unroll 1
  for (int block = u.blocks.begin; block < u.blocks.end; ++block) {
    ptx::cp_async_wait<0>();
    __syncthreads();  // this block has arrived for everyone, and everyone is done with the one before
    gK.data = shared.keys, gV.data = shared.values;
    if (kTile.stages > 1 && block + 1 < u.blocks.end) load_block(block + 1);
    queries_step<Element, Tile>(shared, block % kTile.stages, dq, u, s, block);
    if (kTile.stages == 1 && block + 1 < u.blocks.end) {
      __syncthreads();
      load_block(block + 1);
    }
  }
  static_assert(sizeof(shared) >= ClusterJoin<Core>::kFloats * sizeof(float));
  write_dq<Core>(p, queries_unit<Tile>(p, ptx::block_index()), dq, reinterpret_cast<float*>(&shared));
  ptx::wait_for_earlier_kernels();  // where it ran beside the one for dk and dv: who waits for this one waits for both
}

template <class Element, class Tile>
KernelInstance backward_queries_instance() {
  using Shared = BackwardQueriesShared<Element, Tile>;
  return {reinterpret_cast<const void*>(&backward_queries<Element, Tile>), Tile::kShape,
          static_cast<int>(sizeof(Shared))};
}

}  // namespace fovea::cuda::any

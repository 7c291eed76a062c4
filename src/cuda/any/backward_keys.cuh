// Backward for dk and dv: a block of threads keeps a tile of keys and values and lets the queries that may see them
// pass by, those of every query head of the group, so that no two blocks add to the same result. Scores are computed
// transposed (rows are keys): probabilities and their gradients are then operands of the second products where they
// are.
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
struct BackwardKeysShared {
  using Core = CoreOf<Element, Tile>;
  static constexpr int kPitch = Core::Layout::kPitch, kStages = Tile::kShape.stages, kStream = Tile::kShape.stream;
  alignas(128) std::byte k[Tile::kShape.rows() * kPitch];
  std::byte v[Tile::kShape.rows() * kPitch];
  std::byte q[kStages][kStream * kPitch];
  std::byte dout[kStages][kStream * kPitch];
  alignas(16) float lse[kStages][kStream];
  float delta[kStages][kStream];
  alignas(16) typename Core::Stage stage;
  Range free;  // of the unit: fp32 tiles have no registers left for it
};

// The two results of a block of threads. Above 128 columns both do not fit the registers: then one block makes dv, its
// neighbour dk, and the scores are computed twice.
template <class Core, bool kBoth>
struct KeyGradients {
  typename Core::Results dk, dv;
  __device__ __forceinline__ void clear() {
    fill(dk, 0.0f);
    fill(dv, 0.0f);
  }
};
template <class Core>
struct KeyGradients<Core, false> {
  union {
    typename Core::Results dk, dv;
  };
  __device__ __forceinline__ void clear() { fill(dk, 0.0f); }
};

// Keys from `first_row` of one key head; steps [begin, end) over the query blocks of all heads of the group, block
// `step % blocks` of head `step / blocks`, counted from the first block that sees a key of the tile.
struct KeysUnit {
  Place place;
  int first_row;
  bool dk, dv;
  Range steps, blocks, free;
};

template <class Tile, bool kBoth>
__device__ __forceinline__ KeysUnit keys_unit(const BackwardParameters& p, unsigned block) {
  constexpr TileShape kTile = Tile::kShape;
  constexpr unsigned kRoles = kBoth ? 1 : 2;
  const Shape& s = p.shape;
  const unsigned role = block % kRoles;
  KeysUnit u{.place = place_of(block / kRoles, p.split, p.grid)};
  u.first_row = u.place.tile * kTile.rows();
  u.dk = p.dk.data != nullptr && (kBoth || role == 0);
  u.dv = p.dv.data != nullptr && (kBoth || role == 1);
  const int last = min(u.first_row + kTile.rows(), s.len_k) - 1;
  u.blocks = blocks_of(queries_of_any(s, u.first_row, last), kTile.stream);
  const int count = (u.blocks.end - u.blocks.begin) * s.group;
  u.steps = part_of({0, u.dk || u.dv ? count : 0}, p.split, u.place.part);
  const Range all = queries_of_all(s, u.first_row, last);
  // The last block may lie half outside the queries: their lse of +inf makes their probabilities 0.
  u.free = {(all.begin + kTile.stream - 1) / kTile.stream, all.end == s.len_q ? u.blocks.end : all.end / kTile.stream};
  return u;
}

// Row statistics of a block of queries; queries outside get an lse of +inf, that is probabilities of 0.
template <int kStream>
__device__ __forceinline__ void load_statistics(float (&lse)[kStream], float (&delta)[kStream],
                                                const BackwardParameters& p, std::int64_t sequence, int first_query) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= kStream) return;
  const bool inside = first_query + i < p.shape.len_q;
  const std::int64_t row = sequence * p.shape.len_q + first_query + i;
  lse[i] = inside ? p.lse[row] : kInfinity;
  delta[i] = inside ? p.delta[row] : 0.0f;
}

template <class Core>
__device__ __forceinline__ void mask_transposed(typename Core::Scores& values, const Shape& s, int first_key,
                                                int first_query) {
#pragma unroll
  for (int j = 0; j < Core::kScoreColumns; ++j) {
    const Range visible = visible_keys(s, first_query + Core::score_column(j));
#pragma unroll
    for (int i = 0; i < Core::kRows; ++i) {
      const int key = first_key + Core::row(i);
      if (key < visible.begin || key >= visible.end) values[i][j] = 0.0f;
    }
  }
}

// The tile's keys and, where dk is wanted, values.
template <class Element, class Tile>
__device__ __forceinline__ void load_kept(BackwardKeysShared<Element, Tile>& shared, const BackwardParameters& p,
                                          const KeysUnit& u) {
  using Layout = typename CoreOf<Element, Tile>::Layout;
  constexpr TileShape kTile = Tile::kShape;
  const auto gK = rows_of<Element>(p.k, u.place.batch, u.place.head, p.shape.len_k, p.shape.dim_qk);
  const auto gV = rows_of<Element>(p.v, u.place.batch, u.place.head, p.shape.len_k, p.shape.dim_v);
  load_by(gK.vector && gV.vector, [&](auto chunks) {
    load_tile<Layout, kTile.threads(), kTile.rows()>(chunks, shared.k, gK, u.first_row);
    if (u.dk) load_tile<Layout, kTile.threads(), kTile.rows()>(chunks, shared.v, gV, u.first_row);
  });
}

// One block of queries: probabilities, dv += P^T dout, their gradients, dk += dS^T Q.
template <class Element, class Tile, bool kBoth>
__device__ __forceinline__ void keys_step(BackwardKeysShared<Element, Tile>& shared, int stage,
                                          KeyGradients<CoreOf<Element, Tile>, kBoth>& gradients, const KeysUnit& u,
                                          const Shape& s, int first_query) {
  using Core = CoreOf<Element, Tile>;
  const int block = first_query / Tile::kShape.stream;
  const Range free = sizeof(Element) == 4 ? shared.free : u.free;
  const bool masked = block < free.begin || block >= free.end;
  typename Core::Scores p;
  Core::multiply_transposed(p, shared.k, shared.q[stage]);
#pragma unroll
  for (int j = 0; j < Core::kScoreColumns; ++j) {
    const float lse = shared.lse[stage][Core::score_column(j)];
#pragma unroll
    for (int i = 0; i < Core::kRows; ++i) p[i][j] = Core::Weights::probability(p[i][j], lse, s);
  }
  if (masked) mask_transposed<Core>(p, s, u.first_row, first_query);
  if (u.dv) Core::multiply(gradients.dv, p, shared.dout[stage], shared.stage);
  if (!u.dk) return;
  typename Core::Scores ds;
  Core::multiply_transposed(ds, shared.v, shared.dout[stage]);
#pragma unroll
  for (int j = 0; j < Core::kScoreColumns; ++j) {
    const float delta = shared.delta[stage][Core::score_column(j)];
#pragma unroll
    for (int i = 0; i < Core::kRows; ++i) ds[i][j] = p[i][j] * (ds[i][j] - delta);
  }
  if (masked) mask_transposed<Core>(ds, s, u.first_row, first_query);
  Core::multiply(gradients.dk, ds, shared.q[stage], shared.stage);
}

template <class Core>
__device__ __forceinline__ void write_gradient(const BackwardParameters& p, const TensorRef& t, float* partial,
                                               const KeysUnit& u, const typename Core::Results& results, int dim,
                                               float factor, float* values) {
  const Shape& s = p.shape;
  if (p.split.in_cluster)
    return join_cluster_gradient<Core>(values, results, factor, p.split, u.place, t, u.first_row, s.len_k, dim,
                                       p.accumulate);
#pragma unroll
  for (int i = 0; i < Core::kRows; ++i) {
    const int key = u.first_row + Core::row(i);
    if (key >= s.len_k) continue;
    if (p.split.splits > 1) {
      const std::int64_t row =
          ((static_cast<std::int64_t>(u.place.part) * s.batch + u.place.batch) * s.heads_kv + u.place.head) * s.len_k +
          key;
      store_partial_row<Core>(partial + row * dim, dim, results[i], factor);
    } else {
      store_row<Core>(t, u.place.batch * t.batch + u.place.head * t.head + key * t.row, dim, p.accumulate, results[i],
                      factor);
    }
  }
}

template <class Element, class Tile>
__global__ void __launch_bounds__(Tile::kShape.threads(), Tile::kShape.resident)
    backward_keys(const __grid_constant__ BackwardParameters p) {
  using Core = CoreOf<Element, Tile>;
  using Layout = typename Core::Layout;
  constexpr TileShape kTile = Tile::kShape;
  constexpr bool kBoth = kTile.dim <= 128;
  extern __shared__ __align__(128) std::byte shared_memory[];
  auto& shared = *reinterpret_cast<BackwardKeysShared<Element, Tile>*>(shared_memory);
  ptx::wait_for_earlier_kernels();
  ptx::let_next_kernel_begin();  // only now: it may rely on the statistics
  const Shape& s = p.shape;
  const KeysUnit u = keys_unit<Tile, kBoth>(p, ptx::block_index());
  if (p.split.splits > 1 && !p.split.in_cluster && u.steps.begin >= u.steps.end) return;  // a part without work
  const int blocks = u.blocks.end - u.blocks.begin;
  const auto first_query = [&](int step) { return (u.blocks.begin + step % blocks) * kTile.stream; };
  const auto load_step = [&](int step) {
    const int batch = u.place.batch, head = u.place.head * s.group + step / blocks, stage = step % kTile.stages;
    const auto gQ = rows_of<Element>(p.q, batch, head, s.len_q, s.dim_qk);
    const auto gDout = rows_of<Element>(p.dout, batch, head, s.len_q, s.dim_v);
    load_by(gQ.vector && gDout.vector, [&](auto chunks) {
      load_tile<Layout, kTile.threads(), kTile.stream>(chunks, shared.q[stage], gQ, first_query(step));
      load_tile<Layout, kTile.threads(), kTile.stream>(chunks, shared.dout[stage], gDout, first_query(step));
    });
    ptx::cp_async_commit();
    load_statistics(shared.lse[stage], shared.delta[stage], p, static_cast<std::int64_t>(batch) * s.heads_q + head,
                    first_query(step));
  };

  KeyGradients<Core, kBoth> gradients;
  gradients.clear();
  if (u.steps.begin < u.steps.end) {
    load_kept(shared, p, u);
    load_step(u.steps.begin);
    if (sizeof(Element) == 4 && threadIdx.x == 0) shared.free = u.free;
    if (s.negate) [[unlikely]] {
      ptx::cp_async_wait<0>();
      __syncthreads();
      negate_tile<Element>(shared.k, sizeof(shared.k));
    }
  }
#pragma unroll 1
  for (int step = u.steps.begin; step < u.steps.end; ++step) {
    ptx::cp_async_wait<0>();
    __syncthreads();  // this block has arrived for everyone, and everyone is done with the one before
    if (kTile.stages > 1 && step + 1 < u.steps.end) load_step(step + 1);
    keys_step<Element, Tile, kBoth>(shared, step % kTile.stages, gradients, u, s, first_query(step));
    if (kTile.stages == 1 && step + 1 < u.steps.end) {
      __syncthreads();
      load_step(step + 1);
    }
  }
  const KeysUnit again = keys_unit<Tile, kBoth>(p, ptx::block_index());
  static_assert(sizeof(shared) >= ClusterJoin<Core>::kFloats * sizeof(float));
  auto* values = reinterpret_cast<float*>(&shared);
  if (again.dk) write_gradient<Core>(p, p.dk, p.partial_first, again, gradients.dk, s.dim_qk, s.scale, values);
  if (again.dv) write_gradient<Core>(p, p.dv, p.partial_second, again, gradients.dv, s.dim_v, 1.0f, values);
}

template <class Element, class Tile>
KernelInstance backward_keys_instance() {
  using Shared = BackwardKeysShared<Element, Tile>;
  return {reinterpret_cast<const void*>(&backward_keys<Element, Tile>), Tile::kShape, static_cast<int>(sizeof(Shared)),
          Tile::kShape.dim > 128};
}

}  // namespace fovea::cuda::any

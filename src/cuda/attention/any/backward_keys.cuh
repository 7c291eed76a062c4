// Backward for dk and dv: a block of threads keeps a tile of keys and values and lets the queries that may see them
// pass by, those of every query head of the group, so that no two blocks add to the same result. Scores are computed
// transposed (rows are keys): probabilities and their gradients are then operands of the second products where they
// are.
#pragma once

#include "cuda/attention/any/cluster_join.cuh"
#include "cuda/attention/any/core_of.cuh"
#include "cuda/attention/any/parameters.h"
#include "cuda/attention/any/passing_queries.cuh"
#include "cuda/device/mask.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace fovea::cuda::any {

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

template <class Element, class Tile>
struct BackwardKeysShared {
  using Core = CoreOf<Element, Tile>;
  static constexpr int kPitch = Core::Layout::kPitch, kStages = Tile::kShape.stages, kStream = Tile::kShape.stream;
  alignas(128) std::byte k[Tile::kShape.rows() * kPitch];
  std::byte v[Tile::kShape.rows() * kPitch];
  std::byte passing[2 * kStages][kStream * kPitch];   // queries and dout
  alignas(16) float statistics[kStages][2][kStream];  // lse and delta
  alignas(16) typename Core::Stage stage;
  KeysUnit unit;  // here because some tiles have no registers left for it
};

template <class Element, class Tile>
using PassingQueriesOf = PassingQueries<Element, Tile, BackwardKeysShared<Element, Tile>>;

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

// P^T = exp(K Q^T - lse) of one block of queries, from `first_query`, in the place of K Q^T.
template <class Core, int kStream>
__device__ __forceinline__ void probabilities(typename Core::Scores& p, const float (&lse)[kStream], bool masked,
                                              const KeysUnit& u, const Shape& s, int first_query) {
#pragma unroll
  for (int j = 0; j < Core::kScoreColumns; ++j) {
    const float row_lse = lse[Core::score_column(j)];
#pragma unroll
    for (int i = 0; i < Core::kRows; ++i) p[i][j] = Core::Weights::probability(p[i][j], row_lse, s);
  }
  if (masked) mask_transposed<Core>(p, s, u.first_row, first_query);
}

// dS^T = P^T (dP^T - delta), in the place of P^T; dP^T = V dout^T.
template <class Core, int kStream>
__device__ __forceinline__ void score_gradients(typename Core::Scores& p, const typename Core::Scores& dp,
                                                const float (&delta)[kStream], bool masked, const KeysUnit& u,
                                                const Shape& s, int first_query) {
#pragma unroll
  for (int j = 0; j < Core::kScoreColumns; ++j) {
    const float row_delta = delta[Core::score_column(j)];
#pragma unroll
    for (int i = 0; i < Core::kRows; ++i) p[i][j] *= dp[i][j] - row_delta;
  }
  if (masked) mask_transposed<Core>(p, s, u.first_row, first_query);
}

// One block of queries: probabilities, dv += P^T dout, their gradients, dk += dS^T Q; and what the next step needs is
// asked for. All of it is there when this begins, but for the dout of a single stage, which arrives meanwhile.
template <class Element, class Tile, bool kBoth>
__device__ __forceinline__ void keys_step(const PassingQueriesOf<Element, Tile>& passing,
                                          KeyGradients<CoreOf<Element, Tile>, kBoth>& gradients, int step, bool more) {
  using Core = CoreOf<Element, Tile>;
  constexpr bool kSingle = Tile::kShape.stages == 1;
  const KeysUnit& u = passing.u;
  const Shape& s = passing.p.shape;
  auto& shared = passing.shared;
  RowStatistics next;
  if (kSingle && step != u.steps.begin) passing.load_dout(step);
  if (!kSingle && more) {
    passing.load_both(step + 1);
    next = passing.read_statistics(step + 1);
  }
  const int stage = step % Tile::kShape.stages, query = passing.first(step), block = query / Tile::kShape.stream;
  const std::byte *q = passing.queries(step), *dout = passing.dout(step);
  const bool masked = block < u.free.begin || block >= u.free.end;
  typename Core::Scores scores;
  Core::multiply_transposed(scores, shared.k, q);
  probabilities<Core>(scores, shared.statistics[stage][0], masked, u, s, query);
  if (kSingle) {
    ptx::cp_async_wait<0>();
    __syncthreads();  // dout has arrived for everyone
  }
  if (u.dv) Core::multiply(gradients.dv, scores, dout, shared.stage);
  if (u.dk) {
    typename Core::Scores dp;
    Core::multiply_transposed(dp, shared.v, dout);
    score_gradients<Core>(scores, dp, shared.statistics[stage][1], masked, u, s, query);
  }
  if (kSingle && more) {
    __syncthreads();  // everyone is done with dout and the statistics
    passing.load_queries(step + 1);
    next = passing.read_statistics(step + 1);
  }
  if (u.dk) Core::multiply(gradients.dk, scores, q, shared.stage);
  if (more) passing.keep_statistics(step + 1, next);
}

// All steps, one product after the other.
template <class Element, class Tile, bool kBoth>
__device__ __forceinline__ void keys_in_turn(const PassingQueriesOf<Element, Tile>& passing,
                                             KeyGradients<CoreOf<Element, Tile>, kBoth>& gradients) {
  const Range steps = passing.u.steps;
#pragma unroll 1
  for (int step = steps.begin; step < steps.end; ++step) {
    if (Tile::kShape.stages == 1 && step == steps.begin) {
      ptx::cp_async_wait<1>();  // the first dout is still under way
    } else {
      ptx::cp_async_wait<0>();
    }
    CoreOf<Element, Tile>::publish_copies();
    __syncthreads();  // this block has arrived for everyone, and everyone is done with the one before
    keys_step<Element, Tile, kBoth>(passing, gradients, step, step + 1 < steps.end);
  }
}

// All steps for both gradients from rows of whole chunks, where products run beside the arithmetic between them: V
// dout^T beside P^T, P^T dout beside dS^T.
template <class Element, class Tile>
__device__ __forceinline__ void keys_beside(const PassingQueriesOf<Element, Tile>& passing,
                                            KeyGradients<CoreOf<Element, Tile>, true>& gradients) {
  using Core = CoreOf<Element, Tile>;
  const KeysUnit& u = passing.u;
  const Shape& s = passing.p.shape;
  auto& shared = passing.shared;
  NextQueries<Element, Tile, BackwardKeysShared<Element, Tile>> ahead(passing, u.steps.begin);
  const int end = u.steps.end;
#pragma unroll 1
  for (int step = u.steps.begin; step < end; ++step) {
    ptx::cp_async_wait<0>();
    Core::publish_copies();
    __syncthreads();  // this block has arrived for everyone, and everyone is done with the one before
    const int stage = step % Tile::kShape.stages, query = ahead.query, block = query / Tile::kShape.stream;
    const std::byte *q = passing.queries(step), *dout = passing.dout(step);
    typename Core::Scores scores, dp;
    Core::begin_transposed(scores, shared.k, q);
    Core::begin_transposed(dp, shared.v, dout);
    ahead.next(passing, step + 1);
    if (step + 1 < end) ahead.load(passing, step + 1);
    const bool masked = block < u.free.begin || block >= u.free.end;
    Core::template wait<1>(scores);
    probabilities<Core>(scores, shared.statistics[stage][0], masked, u, s, query);
    Core::begin(gradients.dv, scores, dout);
    Core::template wait<1>(dp);
    score_gradients<Core>(scores, dp, shared.statistics[stage][1], masked, u, s, query);
    Core::template wait<0>(gradients.dv);
    Core::begin(gradients.dk, scores, q);
    Core::template wait<0>(gradients.dk);
  }
}

template <class Element, class Tile>
__global__ void __launch_bounds__(Tile::kShape.threads(), kResident<Tile>)
    backward_keys(const __grid_constant__ BackwardParameters p) {
  using Core = CoreOf<Element, Tile>;
  constexpr TileShape kTile = Tile::kShape;
  constexpr bool kBoth = kTile.dim <= 128;
  extern __shared__ __align__(1024) std::byte shared_memory[];
  auto& shared = *reinterpret_cast<BackwardKeysShared<Element, Tile>*>(shared_memory);
  const Shape& s = p.shape;
  const KeysUnit own = keys_unit<Tile, kBoth>(p, ptx::block_index());
  constexpr bool kUnitInShared = sizeof(Element) == 4 || kTile.warpgroup;
  if (kUnitInShared) {
    if (threadIdx.x == 0) shared.unit = own;
    __syncthreads();
  }
  const KeysUnit& u = kUnitInShared ? shared.unit : own;
  const PassingQueriesOf<Element, Tile> passing{p, u, shared};
  if (u.steps.begin < u.steps.end) {
    load_kept(shared, p, u);
    if (kTile.stages == 1) {
      passing.load_queries(u.steps.begin);
      passing.load_dout(u.steps.begin);
    } else {
      passing.load_both(u.steps.begin);
    }
  }
  ptx::wait_for_earlier_kernels();  // for the statistics; that kernel began when all before this call had ended
  ptx::let_next_kernel_begin();     // only now: it may rely on the statistics
  if (p.split.splits > 1 && !p.split.in_cluster && u.steps.begin >= u.steps.end) return;  // a part without work
  KeyGradients<Core, kBoth> gradients;
  gradients.clear();
  if (u.steps.begin < u.steps.end) {
    passing.keep_statistics(u.steps.begin, passing.read_statistics(u.steps.begin));
    if (s.negate) [[unlikely]] {
      ptx::cp_async_wait<0>();
      __syncthreads();
      negate_tile<Element>(shared.k, sizeof(shared.k));
    }
  }
  if constexpr (Core::kAsynchronous) {
    if (u.dk && u.dv && passing.vector()) {
      keys_beside<Element, Tile>(passing, gradients);
    } else {
      keys_in_turn<Element, Tile, kBoth>(passing, gradients);
    }
  } else {
    keys_in_turn<Element, Tile, kBoth>(passing, gradients);
  }
  const KeysUnit again = keys_unit<Tile, kBoth>(p, ptx::block_index());
  static_assert(sizeof(shared) >= ClusterJoin<Core>::kFloats * sizeof(float));
  auto* values = reinterpret_cast<float*>(&shared);
  const auto write = [&](const typename Core::Results& results, float factor, const GradientPlace& to) {
    write_gradient<Core>(values, results, factor, p, to, again.place, again.first_row);
  };
  if (again.dk) write(gradients.dk, s.scale, {p.dk, p.partial_first, s.heads_kv, s.len_k, s.dim_qk});
  if (again.dv) write(gradients.dv, 1.0f, {p.dv, p.partial_second, s.heads_kv, s.len_k, s.dim_v});
}

template <class Element, class Tile>
KernelInstance backward_keys_instance() {
  using Shared = BackwardKeysShared<Element, Tile>;
  return {reinterpret_cast<const void*>(&backward_keys<Element, Tile>), Tile::kShape, static_cast<int>(sizeof(Shared)),
          Tile::kShape.dim > 128};
}

}  // namespace fovea::cuda::any

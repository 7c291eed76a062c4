// Forward: a block of threads keeps a tile of queries and lets the keys pass by, block after block, with the running
// softmax of FlashAttention-2 (Dao, arXiv 2307.08691, algorithm 1). Any problem of the contract up to a head dimension
// of 256. Schedule and shared-memory map: docs/kernels/cuda_any.md.
#pragma once

#include "cuda/attention/any/cluster_join.cuh"
#include "cuda/attention/any/core_of.cuh"
#include "cuda/attention/any/parameters.h"
#include "cuda/attention/any/passing_blocks.cuh"
#include "cuda/device/cluster_barrier.cuh"
#include "cuda/device/mask.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/device/store.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace fovea::cuda::any {

template <class Element, class Tile>
struct ForwardShared {
  using Core = CoreOf<Element, Tile>;
  static constexpr int kPitch = Core::Layout::kPitch;
  static constexpr bool kExchange = false;
  alignas(128) std::byte q[Tile::kShape.rows() * kPitch];
  std::byte passing[2 * Tile::kShape.stages][Tile::kShape.block() * kPitch];
  alignas(16) typename Core::Stage stage;
  Element *keys, *values;  // first elements of the sequence, where registers of them would be spilled
  int first_row;           // of the unit
  Range free;
  Place place;
};

// What one block of threads does: queries from `first_row` of one head and these blocks of keys, of which those in
// `free` need no mask.
struct ForwardUnit {
  Place place;
  int first_row;
  Range blocks, free;
};

template <class Tile>
__device__ __forceinline__ ForwardUnit forward_unit(const ForwardParameters& p, unsigned block) {
  const Shape& s = p.shape;
  ForwardUnit u{.place = place_of(block, p.split, p.grid)};
  u.first_row = (p.grid.tiles - 1 - u.place.tile) * Tile::kShape.rows();  // the longest rows of a causal mask first
  const int last = min(u.first_row + Tile::kShape.rows(), s.len_q) - 1;
  u.blocks = part_of(blocks_of(keys_of_any(s, u.first_row, last), Tile::kShape.block()), p.split, u.place.part);
  const Range all = keys_of_all(s, u.first_row, last);
  u.free = {(all.begin + Tile::kShape.block() - 1) / Tile::kShape.block(), all.end / Tile::kShape.block()};
  return u;
}

// Raises each row's maximum, rescales what was accumulated, and turns scores into weights.
template <class Core>
__device__ __forceinline__ void softmax_step(typename Core::Scores& scores, typename Core::Results& results,
                                             RowState (&rows)[Core::kRows], const Shape& s) {
  using Weights = typename Core::Weights;
#pragma unroll
  for (int i = 0; i < Core::kRows; ++i) {
    float maximum = scores[i][0];
#pragma unroll
    for (int j = 1; j < Core::kScoreColumns; ++j) maximum = fmaxf(maximum, scores[i][j]);
    const float factor = raise<Weights>(rows[i], lanes_max<Core::kLanes, Core::kLaneStep>(maximum), s);
    const float reference = reference_of(rows[i].maximum);
#pragma unroll
    for (int j = 0; j < Core::kScoreColumns; ++j) {
      scores[i][j] = Weights::weight(scores[i][j] - reference, s);
      rows[i].sum += scores[i][j];
    }
#pragma unroll
    for (int j = 0; j < Core::kColumns; ++j) results[i][j] *= factor;
  }
}

__device__ __forceinline__ void store_lse(const ForwardParameters& p, const Place& place, int query, float lse) {
  if (p.lse.data == nullptr) return;
  static_cast<float*>(p.lse.data)[place.batch * p.lse.batch + place.head * p.lse.head + query * p.lse.row] = lse;
}

template <class Core>
__device__ __forceinline__ void write_forward(const ForwardParameters& p, const Place& place, int first_row,
                                              const typename Core::Results& results,
                                              const RowState (&rows)[Core::kRows]) {
  const Shape& s = p.shape;
#pragma unroll
  for (int i = 0; i < Core::kRows; ++i) {
    const float sum = lanes_sum<Core::kLanes, Core::kLaneStep>(rows[i].sum);
    const int query = first_row + Core::row(i);
    if (query >= s.len_q) continue;
    const bool first_lane = Core::score_column(0) == 0;
    if (p.split.splits > 1) {
      const std::int64_t row =
          ((static_cast<std::int64_t>(place.part) * s.batch + place.batch) * s.heads_q + place.head) * s.len_q + query;
      if (first_lane) p.partial_state[row] = {rows[i].maximum, sum};
      // A part without keys is told by its sum alone.
      if (sum != 0.0f) store_partial_row<Core>(p.partial_out + row * s.dim_v, s.dim_v, results[i], 1.0f);
    } else {
      const Finished done = finish(rows[i].maximum, sum, s);
      if (first_lane) store_lse(p, place, query, done.lse);
      store_row<Core>(p.out, place.batch * p.out.batch + place.head * p.out.head + query * p.out.row, s.dim_v,
                      results[i], done.factor);
    }
  }
}

// Joins what the warps that share the rows found, in the order of their keys, and writes it. `values` is memory of
// the block of threads that nobody reads any more.
template <class Core>
__device__ __forceinline__ void join_and_write(const ForwardParameters& p, const Place& place, int first_row,
                                               typename Core::Results& results, RowState (&rows)[Core::kRows],
                                               float* values) {
  constexpr TileShape kTile = Core::kTile;
  constexpr int kTileRows = kTile.rows(), kPitch = kJoinPitch<Core>, kPart = kTileRows * kPitch;
  const Shape& s = p.shape;
  const int part = warp_index() % kTile.sharing;
  auto* states = reinterpret_cast<RowState*>(values + kTile.sharing * kPart);  // [sharing][rows]
#pragma unroll
  for (int i = 0; i < Core::kRows; ++i) {
    rows[i].sum = lanes_sum<Core::kLanes, Core::kLaneStep>(rows[i].sum);
    if (Core::score_column(0) == 0) states[part * kTileRows + Core::row(i)] = rows[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Core::kRows; ++i) {
    float maximum = rows[i].maximum;
#pragma unroll
    for (int n = 0; n < kTile.sharing; ++n) maximum = fmaxf(maximum, states[n * kTileRows + Core::row(i)].maximum);
    const float reference = reference_of(maximum);
    const float factor = Core::Weights::weight(rows[i].maximum - reference, s);
    put_row<Core>(values + part * kPart + Core::row(i) * kPitch, results[i], factor);
  }
  __syncthreads();
  constexpr int kGroups = kTile.dim / 4;  // a thread makes four neighbouring columns
  static_assert(kTile.threads() % kGroups == 0);
  const int column = static_cast<int>(threadIdx.x) % kGroups * 4;
#pragma unroll 1
  for (int row = static_cast<int>(threadIdx.x) / kGroups; row < kTileRows; row += kTile.threads() / kGroups) {
    const int query = first_row + row;
    if (query >= s.len_q) return;
    float maximum = -kInfinity, sum = 0.0f, joined[4] = {};
#pragma unroll
    for (int n = 0; n < kTile.sharing; ++n) maximum = fmaxf(maximum, states[n * kTileRows + row].maximum);
    const float reference = reference_of(maximum);
#pragma unroll
    for (int n = 0; n < kTile.sharing; ++n) {
      const RowState state = states[n * kTileRows + row];
      sum = fmaf(Core::Weights::weight(state.maximum - reference, s), state.sum, sum);
      const float4 part_values = *reinterpret_cast<const float4*>(values + n * kPart + row * kPitch + column);
      joined[0] += part_values.x, joined[1] += part_values.y, joined[2] += part_values.z, joined[3] += part_values.w;
    }
    const Finished done = finish(maximum, sum, s);
    if (column == 0) store_lse(p, place, query, done.lse);
#pragma unroll
    for (float& value : joined) value *= done.factor;
    store<typename Core::Element, 4>(p.out, place.batch * p.out.batch + place.head * p.out.head + query * p.out.row,
                                     column, s.dim_v, false, joined);
  }
}

// The same for the blocks of threads of a cluster, which found parts of the same rows: each writes its share of them.
template <class Core>
__device__ __forceinline__ void join_cluster_and_write(const ForwardParameters& p, const Place& place, int first_row,
                                                       const typename Core::Results& results,
                                                       RowState (&rows)[Core::kRows], float* values) {
  using Join = ClusterJoin<Core>;
  const Shape& s = p.shape;
  auto* own_states = reinterpret_cast<RowState*>(values + Join::kFloats);  // [rows]
#pragma unroll
  for (int i = 0; i < Core::kRows; ++i) {
    rows[i].sum = lanes_sum<Core::kLanes, Core::kLaneStep>(rows[i].sum);
    if (Core::score_column(0) == 0) own_states[Core::row(i)] = rows[i];
  }
  Join::put(values, results, 1.0f);
  cluster_barrier();
  const Join join(values, p.split, place.part);
  const std::uint32_t state_address = shared_address(own_states);
  for (int row = join.rows.begin; row < join.rows.end; row += Join::kRowsAtOnce) {
    const int query = first_row + row;
    const bool is_row = query < s.len_q;  // of others nothing is read: all that is must be used
    float4 parts[kMaxCluster];
    join.read(parts, row, is_row ? s.dim_v : 0);
    const JoinedState state = JoinedState::read<typename Core::Weights>(
        state_address + row * static_cast<std::uint32_t>(sizeof(RowState)), is_row ? join.parts : 0,
        [&join](int n) { return join.source(n); }, s);
    float joined[4] = {};
#pragma unroll
    for (int n = 0; n < kMaxCluster; ++n) Join::add(joined, parts[n], state.weight_of(n));
    if (!is_row) continue;
    const Finished done = finish(state.maximum, state.sum, s);
    if (join.column == 0) store_lse(p, place, query, done.lse);
#pragma unroll
    for (float& value : joined) value *= done.factor;
    store<typename Core::Element, 4>(p.out, place.batch * p.out.batch + place.head * p.out.head + query * p.out.row,
                                     join.column, s.dim_v, false, joined);
  }
  cluster_barrier_after_reading();  // others may still read this block's shared memory
}

// Where a block of threads stands was kept by keep_place.
template <class Element, class Tile>
__device__ __forceinline__ void write_tile(const ForwardParameters& p, typename CoreOf<Element, Tile>::Results& results,
                                           RowState (&rows)[CoreOf<Element, Tile>::kRows],
                                           ForwardShared<Element, Tile>& shared) {
  using Core = CoreOf<Element, Tile>;
  using Shared = ForwardShared<Element, Tile>;
  constexpr TileShape kTile = Tile::kShape;
  __syncthreads();  // nobody reads keys or values any more
  const Place place = shared.place;
  const int first_row = shared.first_row;
  auto* values = reinterpret_cast<float*>(&shared);
  if constexpr (kTile.sharing > 1) {
    static_assert(offsetof(Shared, keys) >=
                  kTile.sharing * kTile.rows() * (kJoinPitch<Core> * sizeof(float) + sizeof(RowState)));
    join_and_write<Core>(p, place, first_row, results, rows, values);
  } else if (p.split.in_cluster) {
    static_assert(offsetof(Shared, keys) >= kTile.rows() * (kJoinPitch<Core> * sizeof(float) + sizeof(RowState)));
    join_cluster_and_write<Core>(p, place, first_row, results, rows, values);
  } else {
    write_forward<Core>(p, place, first_row, results, rows);
  }
}

// In shared memory: through the loop it would cost registers.
template <class Element, class Tile, class Passing>
__device__ __forceinline__ void keep_place(ForwardShared<Element, Tile>& shared, const ForwardUnit& u,
                                           const Passing& passing) {
  if (threadIdx.x != 0) return;
  if (!Tile::kShape.warpgroup) shared.keys = passing.k.data, shared.values = passing.v.data;
  shared.first_row = u.first_row, shared.place = u.place, shared.free = u.free;
}

template <class Element, class Tile>
__device__ __forceinline__ void negate_queries(ForwardShared<Element, Tile>& shared) {
  ptx::cp_async_wait<0>();
  __syncthreads();
  negate_tile<Element>(shared.q, sizeof(shared.q));
}

template <class Element, class Tile>
__global__ void __launch_bounds__(Tile::kShape.threads(), Tile::kShape.resident)
    forward(const __grid_constant__ ForwardParameters p) {
  using Core = CoreOf<Element, Tile>;
  using Layout = typename Core::Layout;
  constexpr TileShape kTile = Tile::kShape;
  extern __shared__ __align__(1024) std::byte shared_memory[];
  auto& shared = *reinterpret_cast<ForwardShared<Element, Tile>*>(shared_memory);
  const Shape& s = p.shape;
  const ForwardUnit u = forward_unit<Tile>(p, ptx::block_index());
  ptx::let_next_kernel_begin();
  if (p.split.splits > 1 && !p.split.in_cluster && u.blocks.begin >= u.blocks.end) return;  // a part without work
  const int batch = u.place.batch, head_kv = key_head(u.place.head, p.grid);
  PassingBlocks<Element, Tile, ForwardShared<Element, Tile>> passing(
      shared, rows_of<Element>(p.k, batch, head_kv, s.len_k, s.dim_qk), u.blocks.begin);
  const int share = kTile.sharing > 1 ? warp_index() % kTile.sharing * kTile.stream : 0;  // first key of a block

  typename Core::Results results;
  RowState rows[Core::kRows];
  fill(results, 0.0f);
  const bool has_work = u.blocks.begin < u.blocks.end;
  if (has_work) {
    const auto gQ = rows_of<Element>(p.q, batch, u.place.head, s.len_q, s.dim_qk);
    load_by(gQ.vector && passing.k.vector, [&](auto chunks) {
      load_tile<Layout, kTile.threads(), kTile.rows()>(chunks, shared.q, gQ, u.first_row);
      passing.load_keys(chunks, u.blocks.begin);
    });
  }
  passing.add_values(rows_of<Element>(p.v, batch, head_kv, s.len_k, s.dim_v), u.blocks.begin);
  keep_place(shared, u, passing);
  if (has_work) {
    load_by(passing.v.vector, [&](auto chunks) { passing.load_values(chunks, u.blocks.begin); });
    asm volatile("" ::"l"(p.out.row), "l"(p.lse.row));  // the end's lines of parameters come beside the copies
    if (s.negate) [[unlikely]]
      negate_queries(shared);
  }
#pragma unroll 1
  for (int block = u.blocks.begin; block < u.blocks.end; ++block) {
    const bool first = block == u.blocks.begin, last = block + 1 == u.blocks.end;
    passing.wait(first);
    Core::publish_copies();
    __syncthreads();  // this block has arrived for everyone, and everyone is done with the one before
    if (!kTile.warpgroup) passing.k.data = shared.keys, passing.v.data = shared.values;
    typename Core::Scores scores;
    multiply_beside<Core>(scores, shared.q, passing.keys(block) + share * Layout::kPitch,
                          [&] { passing.load_beside_scores(block, first, last); });
    passing.load_behind_scores(block, last);
    if (block < shared.free.begin || block >= shared.free.end)
      fill_hidden<Core>(scores, s, u.first_row, block * kTile.block() + share, -kInfinity);
    softmax_step<Core>(scores, results, rows, s);
    if (kTile.stages == 1) {
      passing.wait_for_values(last);
      Core::publish_copies();
      __syncthreads();  // the values have arrived for everyone, and everyone is done with the keys
      passing.load_behind_softmax(block, last);
    }
    Core::multiply(results, scores, passing.values(block) + share * Layout::kPitch, shared.stage);
  }
  write_tile<Element, Tile>(p, results, rows, shared);
}

template <class Element, class Tile>
KernelInstance forward_instance() {
  using Shared = ForwardShared<Element, Tile>;
  return {reinterpret_cast<const void*>(&forward<Element, Tile>), Tile::kShape, static_cast<int>(sizeof(Shared))};
}

}  // namespace fovea::cuda::any

// Forward: a block of threads keeps a tile of queries and lets the keys pass by, block after block, with the running
// softmax of FlashAttention-2 (Dao, arXiv 2307.08691, algorithm 1). Any problem of the contract up to a head dimension
// of 256. Schedule and shared-memory map: docs/kernels/cuda_any.md.
#pragma once

#include "cuda/any/core_of.cuh"
#include "cuda/any/parameters.h"
#include "cuda/device/mask.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/device/store.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace fovea::cuda::any {

template <class Element, class Tile>
struct ForwardShared {
  using Core = CoreOf<Element, Tile>;
  static constexpr int kPitch = Core::Layout::kPitch;
  alignas(128) std::byte q[Tile::kShape.rows() * kPitch];
  std::byte k[Tile::kShape.stages][Tile::kShape.stream * kPitch];
  std::byte v[Tile::kShape.stages][Tile::kShape.stream * kPitch];
  alignas(16) typename Core::Stage stage;
};

// What one block of threads does: queries from `first_row` of one head, key blocks [begin, end), of which those in
// [free_begin, free_end) need no mask.
struct ForwardUnit {
  int batch, head, split, first_row;
  Range blocks, free;
};

template <class Tile>
__device__ __forceinline__ ForwardUnit forward_unit(const ForwardParameters& p, unsigned block) {
  const Shape& s = p.shape;
  const unsigned tiles = (static_cast<unsigned>(s.len_q) + Tile::kShape.rows() - 1) / Tile::kShape.rows();
  const unsigned splits = static_cast<unsigned>(p.split.splits);
  const unsigned tile = block / splits % tiles, sequence = block / splits / tiles;
  ForwardUnit u;
  u.split = static_cast<int>(block % splits);
  u.batch = static_cast<int>(sequence) / s.heads_q;
  u.head = static_cast<int>(sequence) % s.heads_q;
  u.first_row = static_cast<int>(tiles - 1 - tile) * Tile::kShape.rows();  // the longest rows of a causal mask first
  const int last = min(u.first_row + Tile::kShape.rows(), s.len_q) - 1;
  u.blocks = blocks_of(keys_of_any(s, u.first_row, last), Tile::kShape.stream);
  if (splits > 1) {
    u.blocks.begin += u.split * p.split.blocks_per_split;
    u.blocks.end = min(u.blocks.end, u.blocks.begin + p.split.blocks_per_split);
  }
  const Range all = keys_of_all(s, u.first_row, last);
  u.free = {(all.begin + Tile::kShape.stream - 1) / Tile::kShape.stream, all.end / Tile::kShape.stream};
  return u;
}

template <class Core>
__device__ __forceinline__ void mask_scores(typename Core::Scores& scores, const Shape& s, int first_query,
                                            int first_key) {
#pragma unroll
  for (int i = 0; i < Core::kRows; ++i) {
    const Range visible = visible_keys(s, first_query + Core::row(i));
#pragma unroll
    for (int j = 0; j < Core::kScoreColumns; ++j) {
      const int key = first_key + Core::score_column(j);
      if (key < visible.begin || key >= visible.end) scores[i][j] = -kInfinity;
    }
  }
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
    const float factor = raise<Weights>(rows[i], lanes_max<Core::kLanes>(maximum), s);
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

template <class Core>
__device__ __forceinline__ void write_forward(const ForwardParameters& p, const ForwardUnit& u,
                                              const typename Core::Results& results,
                                              const RowState (&rows)[Core::kRows]) {
  const Shape& s = p.shape;
#pragma unroll
  for (int i = 0; i < Core::kRows; ++i) {
    const float sum = lanes_sum<Core::kLanes>(rows[i].sum);
    const int query = u.first_row + Core::row(i);
    if (query >= s.len_q) continue;
    const bool first_lane = Core::lane() % Core::kLanes == 0;
    if (p.split.splits > 1) {
      const std::int64_t row =
          ((static_cast<std::int64_t>(u.split) * s.batch + u.batch) * s.heads_q + u.head) * s.len_q + query;
      if (first_lane) p.partial_state[row] = {rows[i].maximum, sum};
      // A part without keys is told by its sum alone.
      if (sum != 0.0f) store_partial_row<Core>(p.partial_out + row * s.dim_v, s.dim_v, results[i], 1.0f);
    } else {
      const Finished done = finish(rows[i].maximum, sum, s);
      if (first_lane && p.lse.data != nullptr)
        static_cast<float*>(p.lse.data)[u.batch * p.lse.batch + u.head * p.lse.head + query * p.lse.row] = done.lse;
      store_row<Core>(p.out, u.batch * p.out.batch + u.head * p.out.head + query * p.out.row, s.dim_v, false,
                      results[i], done.factor);
    }
  }
}

template <class Element, class Tile>
__global__ void __launch_bounds__(Tile::kShape.threads(), Tile::kShape.resident)
    forward(const __grid_constant__ ForwardParameters p) {
  using Core = CoreOf<Element, Tile>;
  extern __shared__ __align__(128) std::byte shared_memory[];
  auto& shared = *reinterpret_cast<ForwardShared<Element, Tile>*>(shared_memory);
  const Shape& s = p.shape;
  const ForwardUnit u = forward_unit<Tile>(p, ptx::block_index());
  const auto gQ = rows_of<Element>(p.q, u.batch, u.head, s.len_q, s.dim_qk);
  const auto gK = rows_of<Element>(p.k, u.batch, u.head / s.group, s.len_k, s.dim_qk);
  const auto gV = rows_of<Element>(p.v, u.batch, u.head / s.group, s.len_k, s.dim_v);
  const auto load_block = [&](int block) {
    const int stage = block % Tile::kShape.stages;
    load_tile<Tile::kShape.stream, Tile::kShape.dim>(shared.k[stage], gK, block * Tile::kShape.stream);
    load_tile<Tile::kShape.stream, Tile::kShape.dim>(shared.v[stage], gV, block * Tile::kShape.stream);
    ptx::cp_async_commit();
  };

  typename Core::Results results;
  RowState rows[Core::kRows];
  fill(results, 0.0f);
  if (u.blocks.begin < u.blocks.end) {
    load_tile<Tile::kShape.rows(), Tile::kShape.dim>(shared.q, gQ, u.first_row);
    load_block(u.blocks.begin);
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
    if (Tile::kShape.stages > 1 && block + 1 < u.blocks.end) load_block(block + 1);
    const int stage = block % Tile::kShape.stages;
    typename Core::Scores scores;
    Core::multiply_transposed(scores, shared.q, shared.k[stage]);
    if (block < u.free.begin || block >= u.free.end)
      mask_scores<Core>(scores, s, u.first_row, block * Tile::kShape.stream);
    softmax_step<Core>(scores, results, rows, s);
    Core::multiply(results, scores, shared.v[stage], shared.stage);
    if (Tile::kShape.stages == 1 && block + 1 < u.blocks.end) {
      __syncthreads();
      load_block(block + 1);
    }
  }
  write_forward<Core>(p, forward_unit<Tile>(p, ptx::block_index()), results, rows);
}

template <class Element, class Tile>
KernelInstance forward_instance() {
  using Shared = ForwardShared<Element, Tile>;
  return {reinterpret_cast<const void*>(&forward<Element, Tile>), Tile::kShape, static_cast<int>(sizeof(Shared))};
}

}  // namespace fovea::cuda::any

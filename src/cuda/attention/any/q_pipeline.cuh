// The pipeline of Q and dO tiles, with their lse and delta, for dK and dV: copies into shared memory, one tile ahead.
#pragma once

#include <cstdint>

#include "cuda/attention/any/mma_policy.cuh"
#include "cuda/attention/any/parameters.h"
#include "cuda/attention/any/work_tile.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/device/tile.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace fovea::cuda::any {

// The work of one thread block: the K/V tile of one key head, from row `first_row` on. Steps run over the Q tiles of
// all query heads of the group. With `count` Q tiles in q_tiles, step n is the (n % count)-th of them, of the group's
// (n / count)-th head.
struct DkDvWork {
  WorkTile tile;
  int first_row;
  bool computes_dk, computes_dv;
  Range steps, q_tiles, unmasked;
};

// lse and delta of one query row. Rows beyond the last query have lse = +inf, so their probabilities are 0.
struct LseDelta {
  float lse = kInfinity, delta = 0.0f;
};

// With a single stage, Q and dO swap buffers after every step: the next Q arrives where dO was, while dK still reads Q.
template <class Element, class Tile, class Shared>
struct QPipeline {
  static constexpr TileShape kTile = Tile::kShape;
  const BackwardParameters& p;
  const DkDvWork& work;
  Shared& shared;

  __device__ __forceinline__ int q_tiles() const { return work.q_tiles.end - work.q_tiles.begin; }
  __device__ __forceinline__ int head(int step) const { return work.tile.head * p.shape.group + step / q_tiles(); }
  __device__ __forceinline__ int first_query(int step) const {
    return (work.q_tiles.begin + step % q_tiles()) * kTile.stream;
  }
  __device__ __forceinline__ std::byte* queries(int step) const {
    return shared.streamed[kTile.stages > 1 ? step % kTile.stages * 2 : step % 2];
  }
  __device__ __forceinline__ std::byte* dout(int step) const {
    return shared.streamed[kTile.stages > 1 ? step % kTile.stages * 2 + 1 : 1 - step % 2];
  }
  __device__ __forceinline__ float (&lse_delta(int step) const)[2][kTile.stream] {
    return shared.lse_delta[step % kTile.stages];
  }
  // Index of the tile's first query in [batch, heads_q, len_q].
  __device__ __forceinline__ std::int64_t row_index(int step) const {
    return (static_cast<std::int64_t>(work.tile.batch) * p.shape.heads_q + head(step)) * p.shape.len_q +
           first_query(step);
  }
  __device__ __forceinline__ Rows<Element> rows(const ConstTensorRef& t, int dim, int step) const {
    return rows_of<Element>(t, work.tile.batch, head(step), p.shape.len_q, dim);
  }
  __device__ __forceinline__ void load(auto whole_chunks, std::byte* tile, const Rows<Element>& from, int step) const {
    load_tile<typename MmaPolicy<Element, Tile>::Layout, kTile.threads(), kTile.stream>(whole_chunks, tile, from,
                                                                                        first_query(step));
  }
  __device__ __forceinline__ void load_queries(int step) const {
    const auto gQ = rows(p.q, p.shape.dim_qk, step);
    dispatch_chunked(gQ.whole_chunks, [&](auto whole_chunks) { load(whole_chunks, queries(step), gQ, step); });
    ptx::cp_async_commit();
  }
  __device__ __forceinline__ void load_dout(int step) const {
    const auto gDout = rows(p.dout, p.shape.dim_v, step);
    dispatch_chunked(gDout.whole_chunks, [&](auto whole_chunks) { load(whole_chunks, dout(step), gDout, step); });
    ptx::cp_async_commit();
  }
  __device__ __forceinline__ bool whole_chunks() const {
    constexpr int kPerChunk = MmaPolicy<Element, Tile>::Layout::kPerChunk;
    return p.q.aligned && p.dout.aligned && p.shape.dim_qk % kPerChunk == 0 && p.shape.dim_v % kPerChunk == 0;
  }
  __device__ __forceinline__ void load_both(int step) const {
    dispatch_chunked(whole_chunks(), [&](auto whole_chunks) {
      load(whole_chunks, queries(step), rows(p.q, p.shape.dim_qk, step), step);
      load(whole_chunks, dout(step), rows(p.dout, p.shape.dim_v, step), step);
    });
    ptx::cp_async_commit();
  }
  // Reads lse and delta into registers ahead of their use, so that no thread waits for them.
  __device__ __forceinline__ LseDelta read_lse_delta(int step) const {
    const int i = static_cast<int>(threadIdx.x), query = first_query(step) + i;
    if (i >= kTile.stream || query >= p.shape.len_q) return {};
    return {p.lse[row_index(step) + i], p.delta[row_index(step) + i]};
  }
  __device__ __forceinline__ void store_lse_delta(int step, const LseDelta& row) const {
    const int i = static_cast<int>(threadIdx.x), stage = step % kTile.stages;
    if (i < kTile.stream) shared.lse_delta[stage][0][i] = row.lse, shared.lse_delta[stage][1][i] = row.delta;
  }
};

// Addresses of this thread's next copies: of Q and dO, and of lse (first half of the threads) or delta (second half).
// Only for tiles that have registers left for them.
template <class Element, class Tile, class Shared>
struct QPrefetch {
  static constexpr TileShape kTile = Tile::kShape;
  static_assert(kTile.threads() == 2 * kTile.stream);
  using Layout = typename MmaPolicy<Element, Tile>::Layout;
  using Pipeline = QPipeline<Element, Tile, Shared>;
  using Copy = TileCopy<Layout, kTile.threads(), kTile.stream>;
  Copy q, dout;
  const float* lse_delta;
  int query;  // the tile's first

  __device__ __forceinline__ QPrefetch(const Pipeline& pipeline, int step, unsigned thread = ptx::thread_index())
      : q(pipeline.rows(pipeline.p.q, pipeline.p.shape.dim_qk, step), pipeline.first_query(step), thread),
        dout(pipeline.rows(pipeline.p.dout, pipeline.p.shape.dim_v, step), pipeline.first_query(step), thread),
        lse_delta((thread < kTile.stream ? pipeline.p.lse : pipeline.p.delta) + pipeline.row_index(step) +
                  thread % kTile.stream),
        query(pipeline.first_query(step)) {}

  // Rows beyond the last query get lse = delta = 0. Their q and dout are 0 as well, so they add nothing.
  __device__ __forceinline__ void load(const Pipeline& pipeline, int step) const {
    const unsigned thread = ptx::thread_index();
    q.copy(pipeline.queries(step), pipeline.p.q.row_stride);
    dout.copy(pipeline.dout(step), pipeline.p.dout.row_stride);
    ptx::cp_async_4(shared_address(pipeline.lse_delta(step)) + 4 * thread, lse_delta,
                    query + static_cast<int>(thread % kTile.stream) < pipeline.p.shape.len_q ? 4 : 0);
    ptx::cp_async_commit();
  }
  // Moves on to `step`.
  __device__ __forceinline__ void advance(const Pipeline& pipeline, int step) {
    query += kTile.stream, lse_delta += kTile.stream;
    q.advance(pipeline.p.q.row_stride), dout.advance(pipeline.p.dout.row_stride);
    if (query >= pipeline.work.q_tiles.end * kTile.stream) *this = QPrefetch(pipeline, step);  // the next head
  }
};

}  // namespace fovea::cuda::any

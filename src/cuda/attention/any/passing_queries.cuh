// The blocks of queries, with dout, that pass by a tile of keys in shared memory: asked for one ahead.
#pragma once

#include <cstdint>

#include "cuda/attention/any/core_of.cuh"
#include "cuda/attention/any/parameters.h"
#include "cuda/attention/any/parts.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/device/tile.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace fovea::cuda::any {

// Keys from `first_row` of one key head; steps [begin, end) over the query blocks of all heads of the group, block
// `step % blocks` of head `step / blocks`, counted from the first block that sees a key of the tile.
struct KeysUnit {
  Place place;
  int first_row;
  bool dk, dv;
  Range steps, blocks, free;
};

// Row statistics of one query; those outside get an lse of +inf, that is probabilities of 0.
struct RowStatistics {
  float lse = kInfinity, delta = 0.0f;
};

// The blocks of queries, with dout, that pass by a tile. A single stage has queries and dout change places from step to
// step: the next queries arrive where dout was, while dk still reads these.
template <class Element, class Tile, class Shared>
struct PassingQueries {
  static constexpr TileShape kTile = Tile::kShape;
  const BackwardParameters& p;
  const KeysUnit& u;
  Shared& shared;

  __device__ __forceinline__ int blocks() const { return u.blocks.end - u.blocks.begin; }
  __device__ __forceinline__ int head(int step) const { return u.place.head * p.shape.group + step / blocks(); }
  __device__ __forceinline__ int first(int step) const { return (u.blocks.begin + step % blocks()) * kTile.stream; }
  __device__ __forceinline__ std::byte* queries(int step) const {
    return shared.passing[kTile.stages > 1 ? step % kTile.stages * 2 : step % 2];
  }
  __device__ __forceinline__ std::byte* dout(int step) const {
    return shared.passing[kTile.stages > 1 ? step % kTile.stages * 2 + 1 : 1 - step % 2];
  }
  __device__ __forceinline__ float (&statistics(int step) const)[2][kTile.stream] {
    return shared.statistics[step % kTile.stages];
  }
  // Of the first query of a block, among those of all heads.
  __device__ __forceinline__ std::int64_t row(int step) const {
    return (static_cast<std::int64_t>(u.place.batch) * p.shape.heads_q + head(step)) * p.shape.len_q + first(step);
  }
  __device__ __forceinline__ Rows<Element> rows(const TensorRef& t, int dim, int step) const {
    return rows_of<Element>(t, u.place.batch, head(step), p.shape.len_q, dim);
  }
  __device__ __forceinline__ void load(auto chunks, std::byte* place, const Rows<Element>& from, int step) const {
    load_tile<typename CoreOf<Element, Tile>::Layout, kTile.threads(), kTile.stream>(chunks, place, from, first(step));
  }
  __device__ __forceinline__ void load_queries(int step) const {
    const auto gQ = rows(p.q, p.shape.dim_qk, step);
    load_by(gQ.vector, [&](auto chunks) { load(chunks, queries(step), gQ, step); });
    ptx::cp_async_commit();
  }
  __device__ __forceinline__ void load_dout(int step) const {
    const auto gDout = rows(p.dout, p.shape.dim_v, step);
    load_by(gDout.vector, [&](auto chunks) { load(chunks, dout(step), gDout, step); });
    ptx::cp_async_commit();
  }
  __device__ __forceinline__ bool vector() const {
    constexpr int kPerChunk = CoreOf<Element, Tile>::Layout::kPerChunk;
    return p.q.vector && p.dout.vector && p.shape.dim_qk % kPerChunk == 0 && p.shape.dim_v % kPerChunk == 0;
  }
  __device__ __forceinline__ void load_both(int step) const {
    load_by(vector(), [&](auto chunks) {
      load(chunks, queries(step), rows(p.q, p.shape.dim_qk, step), step);
      load(chunks, dout(step), rows(p.dout, p.shape.dim_v, step), step);
    });
    ptx::cp_async_commit();
  }
  // In registers first, so that nobody waits for them.
  __device__ __forceinline__ RowStatistics read_statistics(int step) const {
    const int i = static_cast<int>(threadIdx.x), query = first(step) + i;
    if (i >= kTile.stream || query >= p.shape.len_q) return {};
    return {p.lse[row(step) + i], p.delta[row(step) + i]};
  }
  __device__ __forceinline__ void keep_statistics(int step, const RowStatistics& row) const {
    const int i = static_cast<int>(threadIdx.x), stage = step % kTile.stages;
    if (i < kTile.stream) shared.statistics[stage][0][i] = row.lse, shared.statistics[stage][1][i] = row.delta;
  }
};

// Where this thread copies the block of queries from that is asked for next, kept where registers are left for it: of
// queries and dout, and, the first half of the threads, of lse, the second of delta.
template <class Element, class Tile, class Shared>
struct NextQueries {
  static constexpr TileShape kTile = Tile::kShape;
  static_assert(kTile.threads() == 2 * kTile.stream);
  using Layout = typename CoreOf<Element, Tile>::Layout;
  using Passing = PassingQueries<Element, Tile, Shared>;
  using Copy = TileCopy<Layout, kTile.threads(), kTile.stream>;
  Copy q, dout;
  const float* statistics;
  int query;  // first of the block

  __device__ __forceinline__ NextQueries(const Passing& passing, int step, unsigned thread = ptx::thread_index())
      : q(passing.rows(passing.p.q, passing.p.shape.dim_qk, step), passing.first(step), thread),
        dout(passing.rows(passing.p.dout, passing.p.shape.dim_v, step), passing.first(step), thread),
        statistics((thread < kTile.stream ? passing.p.lse : passing.p.delta) + passing.row(step) +
                   thread % kTile.stream),
        query(passing.first(step)) {}

  // A query that is not there has statistics of 0: q and dout are as well, and nothing is added.
  __device__ __forceinline__ void load(const Passing& passing, int step) const {
    const unsigned thread = ptx::thread_index();
    q.copy(passing.queries(step), passing.p.q.row);
    dout.copy(passing.dout(step), passing.p.dout.row);
    ptx::cp_async_4(shared_address(passing.statistics(step)) + 4 * thread, statistics,
                    query + static_cast<int>(thread % kTile.stream) < passing.p.shape.len_q ? 4 : 0);
    ptx::cp_async_commit();
  }
  // On to `step`.
  __device__ __forceinline__ void next(const Passing& passing, int step) {
    query += kTile.stream, statistics += kTile.stream;
    q.next(passing.p.q.row), dout.next(passing.p.dout.row);
    if (query >= passing.u.blocks.end * kTile.stream) *this = NextQueries(passing, step);  // of the next head
  }
};

}  // namespace fovea::cuda::any

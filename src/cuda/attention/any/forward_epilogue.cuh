// The forward kernel's epilogue: combines the warps or thread blocks that share rows, divides by the sum, and writes
// out and lse. Or it writes partials for combine.cu.
#pragma once

#include "cuda/attention/any/cluster_combine.cuh"
#include "cuda/attention/any/mma_policy.cuh"
#include "cuda/attention/any/parameters.h"
#include "cuda/attention/any/work_tile.cuh"
#include "cuda/device/cluster_barrier.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/device/store.cuh"

namespace fovea::cuda::any {

__device__ __forceinline__ void store_lse(const ForwardParameters& p, const WorkTile& tile, int query, float lse) {
  if (p.lse.data == nullptr) return;
  static_cast<float*>(p.lse.data)[row_offset(p.lse, tile.batch, tile.head, query)] = lse;
}

// Divides four columns of a row by its sum and writes them. The thread of the first columns writes lse too.
template <class Element>
__device__ __forceinline__ void write_columns(const ForwardParameters& p, const WorkTile& tile, int query, int column,
                                              float (&values)[4], const FinalRow& row) {
  if (column == 0) store_lse(p, tile, query, row.lse);
#pragma unroll
  for (float& value : values) value *= row.inverse_sum;
  store<Element, 4>(p.out, row_offset(p.out, tile.batch, tile.head, query), column, p.shape.dim_v, false, values);
}

// Writes results, or the partials of one split, straight from registers: no other warp or thread block has these rows.
template <class Mma>
__device__ __forceinline__ void write_forward(const ForwardParameters& p, const WorkTile& tile, int first_row,
                                              const typename Mma::Accumulator& acc,
                                              const RowState (&rows)[Mma::kRows]) {
  const Shape& s = p.shape;
#pragma unroll
  for (int i = 0; i < Mma::kRows; ++i) {
    const float sum = lanes_sum<Mma::kLanes, Mma::kLaneStep>(rows[i].sum);
    const int query = first_row + Mma::row(i);
    if (query >= s.len_q) continue;
    const bool first_lane = Mma::score_column(0) == 0;
    if (p.split.splits > 1) {
      const std::int64_t row =
          ((static_cast<std::int64_t>(tile.split) * s.batch + tile.batch) * s.heads_q + tile.head) * s.len_q + query;
      if (first_lane) p.partial_state[row] = {rows[i].maximum, sum};
      // A sum of 0 tells the combine that this split saw no score above -inf.
      if (sum != 0.0f) store_partial_row<Mma>(p.partial_out + row * s.dim_v, s.dim_v, acc[i], 1.0f);
    } else {
      const FinalRow done = finalize_row(rows[i].maximum, sum, s, query);
      if (first_lane) store_lse(p, tile, query, done.lse);
      store_row<Mma>(p.out, row_offset(p.out, tile.batch, tile.head, query), s.dim_v, acc[i], done.inverse_sum);
    }
  }
}

// Combines the warps that own the same rows, in the order of their keys, and writes the rows. `values`: shared memory
// that nobody reads any more.
template <class Mma>
__device__ __forceinline__ void combine_warps_and_write(const ForwardParameters& p, const WorkTile& tile, int first_row,
                                                        typename Mma::Accumulator& acc, RowState (&rows)[Mma::kRows],
                                                        float* values) {
  constexpr TileShape kTile = Mma::kTile;
  constexpr int kTileRows = kTile.rows(), kPitch = kCombinePitch<Mma>, kWarpFloats = kTileRows * kPitch;
  const Shape& s = p.shape;
  const int warp = warp_index() % kTile.split_warps;
  auto* states = reinterpret_cast<RowState*>(values + kTile.split_warps * kWarpFloats);  // [split_warps][rows]
#pragma unroll
  for (int i = 0; i < Mma::kRows; ++i) {
    rows[i].sum = lanes_sum<Mma::kLanes, Mma::kLaneStep>(rows[i].sum);
    if (Mma::score_column(0) == 0) states[warp * kTileRows + Mma::row(i)] = rows[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Mma::kRows; ++i) {
    float maximum = rows[i].maximum;
#pragma unroll
    for (int n = 0; n < kTile.split_warps; ++n) maximum = fmaxf(maximum, states[n * kTileRows + Mma::row(i)].maximum);
    const float row_max = finite_max(maximum);
    const float factor = Mma::Exp::scaled(rows[i].maximum - row_max, s);
    put_row<Mma>(values + warp * kWarpFloats + Mma::row(i) * kPitch, acc[i], factor);
  }
  __syncthreads();
  constexpr int kGroups = kTile.dim / 4;  // a thread sums four neighbouring columns
  static_assert(kTile.threads() % kGroups == 0);
  const int column = static_cast<int>(threadIdx.x) % kGroups * 4;
#pragma unroll 1
  for (int row = static_cast<int>(threadIdx.x) / kGroups; row < kTileRows; row += kTile.threads() / kGroups) {
    const int query = first_row + row;
    if (query >= s.len_q) return;
    float maximum = -kInfinity, sum = 0.0f, total[4] = {};
#pragma unroll
    for (int n = 0; n < kTile.split_warps; ++n) maximum = fmaxf(maximum, states[n * kTileRows + row].maximum);
    const float row_max = finite_max(maximum);
#pragma unroll
    for (int n = 0; n < kTile.split_warps; ++n) {
      const RowState state = states[n * kTileRows + row];
      sum = fmaf(Mma::Exp::scaled(state.maximum - row_max, s), state.sum, sum);
      const float4 value = *reinterpret_cast<const float4*>(values + n * kWarpFloats + row * kPitch + column);
      total[0] += value.x, total[1] += value.y, total[2] += value.z, total[3] += value.w;
    }
    write_columns<typename Mma::Element>(p, tile, query, column, total, finalize_row(maximum, sum, s, query));
  }
}

// Combines the thread blocks of a cluster, which are the splits of one tile. Each writes a slice of the tile's rows.
template <class Mma>
__device__ __forceinline__ void combine_cluster_and_write(const ForwardParameters& p, const WorkTile& tile,
                                                          int first_row, const typename Mma::Accumulator& acc,
                                                          RowState (&rows)[Mma::kRows], float* values) {
  using Combine = ClusterCombine<Mma>;
  const Shape& s = p.shape;
  auto* own_states = reinterpret_cast<RowState*>(values + Combine::kFloats);  // [rows]
#pragma unroll
  for (int i = 0; i < Mma::kRows; ++i) {
    rows[i].sum = lanes_sum<Mma::kLanes, Mma::kLaneStep>(rows[i].sum);
    if (Mma::score_column(0) == 0) own_states[Mma::row(i)] = rows[i];
  }
  Combine::put(values, acc, 1.0f);
  cluster_barrier();
  const Combine combine(values, p.split, tile.split);
  const std::uint32_t state_address = shared_address(own_states);
  for (int row = combine.rows.begin; row < combine.rows.end; row += Combine::kRowsAtOnce) {
    const int query = first_row + row;
    // Rows beyond the last query are not read: cluster_barrier_after_reads() requires that every loaded value is used.
    const bool exists = query < s.len_q;
    float4 splits[kMaxCluster];
    combine.read(splits, row, exists ? s.dim_v : 0);
    const CombinedState state = CombinedState::read<typename Mma::Exp>(
        state_address + row * static_cast<std::uint32_t>(sizeof(RowState)), exists ? combine.splits : 0,
        [&combine](int n) { return combine.source(n); }, s);
    float total[4] = {};
#pragma unroll
    for (int n = 0; n < kMaxCluster; ++n) Combine::add(total, splits[n], state.factor_of(n));
    if (!exists) continue;
    write_columns<typename Mma::Element>(p, tile, query, combine.column, total,
                                         finalize_row(state.maximum, state.sum, s, query));
  }
  cluster_barrier_after_reads();  // other thread blocks may still read this one's shared memory
}

}  // namespace fovea::cuda::any

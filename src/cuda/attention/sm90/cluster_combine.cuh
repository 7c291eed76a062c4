// The combine of a cluster's splits. Each thread block of the cluster is one split of the same query tile. It puts its
// results, not divided by the sum, and the states of its rows into its shared memory. Then thread block r combines rows
// r, r + splits, ... of the tile over the shared memory of all. The order of every sum is fixed, so every run gives the
// same bits.
#pragma once

#include "cuda/attention/sm90/forward_epilogue.cuh"
#include "cuda/device/cluster_barrier.cuh"

namespace fovea::cuda::sm90 {

template <class Element, class Tile>
struct ClusterCombine {
  static constexpr ForwardTile kTile = Tile::kTile;
  static constexpr int kWarps = 4 * kTile.warpgroups;
  static constexpr int kPitch = kTile.dim_v + 8;              // floats of a row: float2 writes without bank conflicts
  static constexpr int kLanes = kTile.dim_v <= 64 ? 16 : 32;  // of a row; each sums four neighbouring columns
  static constexpr int kRowsAtOnce = 32 / kLanes;             // of a warp
  static constexpr int kBarrier = 1 + kTile.warpgroups;       // named; those before are the warpgroups' turns
  static constexpr int kAtOnce = 8;                           // loads of a lane in flight
  static_assert(kMaxCluster <= kLanes && kMaxCluster % kAtOnce == 0);
  static_assert(kTile.rows() * kPitch * 4 <= ForwardShared<Tile>::kStageBytes);

  const ForwardParameters& p;
  ForwardShared<Tile>& shared;
  int warp, lane;  // the consumers' warps are counted from 0

  // The thread block's results take the place of its Q, K and V tiles, which no warpgroup needs any more.
  __device__ __forceinline__ float* results() const { return reinterpret_cast<float*>(&shared); }

  template <int kCount>
  __device__ __forceinline__ void put(const float (&out)[kCount], const RowScale& scale) const {
    ptx::named_barrier_sync(kBarrier, kWarps * 32);  // every warp is done with its last P V
    float* row = results() + (warp * kWarpRows + lane / 4) * kPitch + 2 * (lane % 4);
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      const int at = row_of(i);
      *reinterpret_cast<float2*>(row + 8 * at * kPitch + i / 4 * 8) = {out[i] * scale.factor[at],
                                                                       out[i + 1] * scale.factor[at]};
    }
  }
  // A split without keys.
  __device__ __forceinline__ void put_no_keys() const {
    if (lane < kWarpRows) shared.states[warp * kWarpRows + lane] = {-kInfinity, 0.0f};
  }

  // Adds four columns of a row, from splits `first` to `first` + kAtOnce - 1. Bit n of `written` is 0 if split n has no
  // result.
  __device__ __forceinline__ void add_splits(float (&sum)[4], int first, std::uint32_t address, float factor,
                                             unsigned written) const {
    float4 values[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      values[n] = {0.0f, 0.0f, 0.0f, 0.0f};
      if ((written >> (first + n) & 1) != 0)
        values[n] = ptx::load_cluster_float4(ptx::cluster_address(address, first + n));
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const float weight = __shfl_sync(0xffffffffu, factor, first + n, kLanes);
      sum[0] = fmaf(weight, values[n].x, sum[0]), sum[1] = fmaf(weight, values[n].y, sum[1]);
      sum[2] = fmaf(weight, values[n].z, sum[2]), sum[3] = fmaf(weight, values[n].w, sum[3]);
    }
  }

  // Combines a row with kLanes lanes; all lanes of a warp must call. Lane n reads the state of split n.
  __device__ __forceinline__ void combine_row(const QueryTile& tile, int row) const {
    const Shape& s = p.shape;
    const int at = lane % kLanes;
    const int position = static_cast<int>(quotient(static_cast<unsigned>(row), p.packing.heads_divmod));
    const int query = tile.first_query + position, head = tile.head + row - position * p.packing.heads;
    const bool valid = row < kTile.rows() && position < p.packing.queries && query < s.len_q;
    float2 state = {-kInfinity, 0.0f};
    if (valid && at < p.split.splits)
      state = ptx::load_cluster_float2(ptx::cluster_address(shared_address(&shared.states[row]), at));
    const float maximum = lanes_max<kLanes>(state.x);
    const float factor = AccurateExp::scaled(state.x - finite_max(maximum), s);
    const unsigned written = __ballot_sync(0xffffffffu, state.y != 0.0f) >> (lane / kLanes * kLanes);
    const FinalRow done = finalize_row(maximum, lanes_sum<kLanes>(factor * state.y), s, query);
    const std::int64_t offset = row_offset(p.out, tile.batch, head, query);
    if (valid && at == 0 && p.lse.data != nullptr)
      static_cast<float*>(p.lse.data)[row_offset(p.lse, tile.batch, head, query)] = done.lse;
#pragma unroll 1
    for (int first = 0; first < kTile.dim_v; first += 4 * kLanes) {
      const int column = first + 4 * at;
      float sum[4] = {};
      const std::uint32_t address = shared_address(results() + row * kPitch + column);
      const unsigned read = column < kTile.dim_v ? written : 0;
#pragma unroll 1
      for (int split = 0; split < p.split.splits; split += kAtOnce) add_splits(sum, split, address, factor, read);
#pragma unroll
      for (float& value : sum) value *= done.inverse_sum;
      if (valid && column < s.dim_v) store<Element, 4>(p.out, offset, column, s.dim_v, false, sum);
    }
  }

  // All consumer warps, after put() or put_no_keys(). The producer's warps take no part: the barriers do not wait for
  // threads that have exited.
  __device__ __forceinline__ void run() const {
    cluster_barrier();
    const QueryTile tile = query_tile<Tile>(p, static_cast<int>(blockIdx.x));
#pragma unroll 1
    for (int n = warp * kRowsAtOnce; n * p.split.splits < kTile.rows(); n += kWarps * kRowsAtOnce)
      combine_row(tile, (n + lane / kLanes) * p.split.splits + tile.split);
    cluster_barrier_after_reads();  // other thread blocks may still read this one's shared memory
  }
};

}  // namespace fovea::cuda::sm90

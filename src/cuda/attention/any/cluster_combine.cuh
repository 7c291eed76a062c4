// The combine of a cluster's splits: every thread block sums a slice of the tile's rows over the shared memory of all
// thread blocks of the cluster. Each starts with its own rank and wraps around, so the order of every sum is fixed
// and every run gives the same bits.
#pragma once

#include <bit>
#include <cstdint>

#include "cuda/attention/any/mma_policy.cuh"
#include "cuda/attention/any/work_tile.cuh"
#include "cuda/device/cluster_barrier.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/cluster.cuh"

namespace fovea::cuda::any {

template <class Mma>
struct ClusterCombine {
  static constexpr TileShape kTile = Mma::kTile;
  static constexpr int kPitch = kCombinePitch<Mma>;
  static constexpr int kFloats = kTile.rows() * kPitch;
  static constexpr int kGroups = kTile.dim / 4;  // a thread sums four neighbouring columns
  static constexpr int kRowsAtOnce = kTile.threads() / kGroups;
  static_assert(kTile.threads() % kGroups == 0 && kGroups % kMaxCluster == 0);

  // Tile rows and column groups are powers of two, as cluster sizes are. So all threads of a warp have the same number
  // of rows.
  static_assert(std::has_single_bit(static_cast<unsigned>(kTile.rows())));
  static_assert(std::has_single_bit(static_cast<unsigned>(kGroups)) && kTile.rows() / kMaxCluster * kGroups >= 32);

  std::uint32_t address;  // of the values in shared memory
  int splits, rank;       // thread blocks of the cluster, and the index of this one
  Range rows;             // of this thread: every kRowsAtOnce-th
  int column = static_cast<int>(threadIdx.x) % kGroups * 4;

  __device__ __forceinline__ ClusterCombine(const float* values, const Split& split, int rank)
      : address(shared_address(values)), splits(split.splits), rank(rank) {
    const int slice = static_cast<int>(quotient(kTile.rows(), split.splits_divmod));
    rows = {rank * slice + static_cast<int>(threadIdx.x) / kGroups, (rank + 1) * slice};
  }

  // This thread's rows if there is no cluster: then the thread block writes the whole tile.
  static __device__ __forceinline__ Range all_rows() { return {static_cast<int>(threadIdx.x) / kGroups, kTile.rows()}; }

  // Call before the cluster barrier: puts the accumulator into this thread block's shared memory.
  static __device__ __forceinline__ void put(float* values, const typename Mma::Accumulator& acc, float factor) {
#pragma unroll
    for (int i = 0; i < Mma::kRows; ++i) put_row<Mma>(values + Mma::row(i) * kPitch, acc[i], factor);
  }

  // Rank of the n-th thread block to read from. Each starts with itself, so that not all read the same one at once.
  __device__ __forceinline__ int source(int n) const {
    const int source = rank + n;
    return source < splits ? source : source - splits;
  }

  // Call after the cluster barrier: this thread's columns of `row` from every thread block, all loads in flight at
  // once. 0 for thread blocks that do not exist and for columns from `dim` on.
  __device__ __forceinline__ void read(float4 (&values)[kMaxCluster], int row, int dim) const {
    const int wanted = column < dim ? splits : 0;
#pragma unroll
    for (int n = 0; n < kMaxCluster; ++n) {
      values[n] = {0.0f, 0.0f, 0.0f, 0.0f};
      if (n < wanted)
        values[n] = ptx::load_cluster_float4(
            ptx::cluster_address(address + 4 * static_cast<std::uint32_t>(row * kPitch + column), source(n)));
    }
  }
  static __device__ __forceinline__ void add(float (&sum)[4], const float4& value, float factor) {
    sum[0] = fmaf(factor, value.x, sum[0]), sum[1] = fmaf(factor, value.y, sum[1]);
    sum[2] = fmaf(factor, value.z, sum[2]), sum[3] = fmaf(factor, value.w, sum[3]);
  }
};

// The softmax state of one row, combined over a cluster: each of eight neighbouring threads reads one thread block's
// state. All eight get the same maximum and sum, and each its own factor. Whole warps must call.
struct CombinedState {
  static constexpr int kThreads = 8;
  static_assert(kThreads == kMaxCluster);
  float maximum, sum;  // of the row
  float factor;        // rescale factor of the thread block that this thread read

  // `address`: of this row's state in this thread block; `source(n)`: rank of the thread block that thread n reads.
  template <class Exp, class Source>
  static __device__ __forceinline__ CombinedState read(std::uint32_t address, int splits, Source source,
                                                       const Shape& s) {
    const int n = static_cast<int>(threadIdx.x) % kThreads;
    float2 state = {-kInfinity, 0.0f};
    if (n < splits) state = ptx::load_cluster_float2(ptx::cluster_address(address, source(n)));
    const float maximum = lanes_max<kThreads>(state.x);
    const float factor = Exp::scaled(state.x - finite_max(maximum), s);
    return {maximum, lanes_sum<kThreads>(factor * state.y), factor};
  }
  __device__ __forceinline__ float factor_of(int n) const { return __shfl_sync(0xffffffffu, factor, n, kThreads); }
};

// Where one gradient goes: `heads` heads of `len` rows of `dim` columns. `partial`: fp32 partials of split work.
struct GradientOutput {
  const TensorRef& tensor;
  float* partial;
  int heads, len, dim;
};

// Writes a tile's accumulator times `factor` to a gradient, rows from `first_row` on: overwrites or accumulates,
// combines with the cluster's other splits, or stores a partial. The accumulator first goes to `values`, shared memory
// that this thread block may still be reading. A short loop then writes whole rows, not scattered columns.
template <class Mma>
__device__ __forceinline__ void write_gradient(float* values, const typename Mma::Accumulator& acc, float factor,
                                               const BackwardParameters& p, const GradientOutput& to,
                                               const WorkTile& tile, int first_row) {
  using Combine = ClusterCombine<Mma>;
  const bool is_partial = p.split.splits > 1 && !p.split.in_cluster;
  const std::int64_t sequence = (static_cast<std::int64_t>(tile.split) * p.shape.batch + tile.batch) * to.heads;
  const TensorRef partial{
      to.partial + (sequence + tile.head) * to.len * to.dim, 0, 0, to.dim, ElementKind::fp32, to.dim % 4 == 0};
  const TensorRef t = is_partial ? partial : to.tensor;
  __syncthreads();
  Combine::put(values, acc, factor);
  if (p.split.in_cluster) {
    cluster_barrier();
  } else {
    __syncthreads();
  }
  const Combine combine(values, p.split, tile.split);
  Range rows = p.split.in_cluster ? combine.rows : Combine::all_rows();
  rows.end = combine.column < to.dim ? min(rows.end, to.len - first_row) : 0;
  const std::int64_t offset = row_offset(t, tile.batch, tile.head, 0);
#pragma unroll 1
  for (int row = rows.begin; row < rows.end; row += Combine::kRowsAtOnce) {
    float sum[4] = {};
    if (p.split.in_cluster) {
      float4 splits[kMaxCluster];
      combine.read(splits, row, to.dim);
#pragma unroll
      for (const float4& value : splits) Combine::add(sum, value, 1.0f);
    } else {
      Combine::add(sum, *reinterpret_cast<const float4*>(values + row * Combine::kPitch + combine.column), 1.0f);
    }
    store<typename Mma::Element, 4>(t, offset + (first_row + row) * t.row_stride, combine.column, to.dim,
                                    p.accumulate && !is_partial, sum);
  }
  if (p.split.in_cluster) cluster_barrier_after_reads();  // other thread blocks may still read this one's shared memory
}

}  // namespace fovea::cuda::any

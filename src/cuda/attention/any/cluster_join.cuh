// What blocks of threads of a cluster found of the same rows: each makes the sum of its share of the rows, through the
// others' shared memory, in the order of the blocks from itself on, the last followed by the first: the same every
// time.
#pragma once

#include <bit>
#include <cstdint>

#include "cuda/attention/any/core_of.cuh"
#include "cuda/attention/any/parts.cuh"
#include "cuda/device/cluster_barrier.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/cluster.cuh"

namespace fovea::cuda::any {

template <class Core>
struct ClusterJoin {
  static constexpr TileShape kTile = Core::kTile;
  static constexpr int kPitch = kJoinPitch<Core>;
  static constexpr int kFloats = kTile.rows() * kPitch;
  static constexpr int kGroups = kTile.dim / 4;  // a thread adds four neighbouring columns
  static constexpr int kRowsAtOnce = kTile.threads() / kGroups;
  static_assert(kTile.threads() % kGroups == 0 && kGroups % kMaxCluster == 0);

  // With powers of two, as a cluster's number of blocks is one, all threads of a warp have the same number of rows.
  static_assert(std::has_single_bit(static_cast<unsigned>(kTile.rows())));
  static_assert(std::has_single_bit(static_cast<unsigned>(kGroups)) && kTile.rows() / kMaxCluster * kGroups >= 32);

  std::uint32_t address;  // of the values
  int parts, part;
  Range rows;  // this thread's, every kRowsAtOnce-th
  int column = static_cast<int>(threadIdx.x) % kGroups * 4;

  // The share of block `part`.
  __device__ __forceinline__ ClusterJoin(const float* values, const Split& split, int part)
      : address(shared_address(values)), parts(split.splits), part(part) {
    const int share = static_cast<int>(quotient(kTile.rows(), split.by_splits));
    rows = {part * share + static_cast<int>(threadIdx.x) / kGroups, (part + 1) * share};
  }

  // This thread's where all rows are the block's own.
  static __device__ __forceinline__ Range all_rows() { return {static_cast<int>(threadIdx.x) / kGroups, kTile.rows()}; }

  // Before the barrier: this block's results.
  static __device__ __forceinline__ void put(float* values, const typename Core::Results& results, float factor) {
#pragma unroll
    for (int i = 0; i < Core::kRows; ++i) put_row<Core>(values + Core::row(i) * kPitch, results[i], factor);
  }

  // The n-th block to read from: each begins with itself, so that not all read the same one at once.
  __device__ __forceinline__ int source(int n) const {
    const int block = part + n;
    return block < parts ? block : block - parts;
  }

  // After it: what the blocks found of this thread's columns, all under way at once; 0 for blocks that are not there,
  // and for columns from `dim` on.
  __device__ __forceinline__ void read(float4 (&values)[kMaxCluster], int row, int dim) const {
    const int wanted = column < dim ? parts : 0;
#pragma unroll
    for (int n = 0; n < kMaxCluster; ++n) {
      values[n] = {0.0f, 0.0f, 0.0f, 0.0f};
      if (n < wanted)
        values[n] = ptx::load_cluster_float4(
            ptx::address_in_block(address + 4 * static_cast<std::uint32_t>(row * kPitch + column), source(n)));
    }
  }
  static __device__ __forceinline__ void add(float (&sum)[4], const float4& value, float weight) {
    sum[0] = fmaf(weight, value.x, sum[0]), sum[1] = fmaf(weight, value.y, sum[1]);
    sum[2] = fmaf(weight, value.z, sum[2]), sum[3] = fmaf(weight, value.w, sum[3]);
  }
};

// What the blocks of a cluster found of one row's softmax, joined: eight threads read a block's each, and every eight
// of a row the same. By whole warps.
struct JoinedState {
  static constexpr int kThreads = 8;
  static_assert(kThreads == kMaxCluster);
  float maximum, sum;  // the row's
  float weight;        // of this thread's block

  // `address`: of this row's state in this block; `source`: of the threads' blocks.
  template <class Weights, class Source>
  static __device__ __forceinline__ JoinedState read(std::uint32_t address, int parts, Source source, const Shape& s) {
    const int n = static_cast<int>(threadIdx.x) % kThreads;
    float2 state = {-kInfinity, 0.0f};
    if (n < parts) state = ptx::load_cluster_float2(ptx::address_in_block(address, source(n)));
    const float maximum = lanes_max<kThreads>(state.x);
    const float weight = Weights::weight(state.x - reference_of(maximum), s);
    return {maximum, lanes_sum<kThreads>(weight * state.y), weight};
  }
  __device__ __forceinline__ float weight_of(int n) const { return __shfl_sync(0xffffffffu, weight, n, kThreads); }
};

// One gradient in memory: of `dim` columns and, for each of `heads` heads, `len` rows. `partial`: where parts through
// memory go.
struct GradientPlace {
  const TensorRef& t;
  float* partial;
  int heads, len, dim;
};

// A tile's share of a gradient, times `factor`, rows from `first_row` on: added to or put in its place, joined with the
// cluster's, or as a part of its own. By way of `values`, shared memory that this block of threads may still be
// reading: a short loop then writes whole rows, where registers would be written a few columns here and there.
template <class Core>
__device__ __forceinline__ void write_gradient(float* values, const typename Core::Results& results, float factor,
                                               const BackwardParameters& p, const GradientPlace& to, const Place& place,
                                               int first_row) {
  using Join = ClusterJoin<Core>;
  const bool in_parts = p.split.splits > 1 && !p.split.in_cluster;
  const std::int64_t sequence = (static_cast<std::int64_t>(place.part) * p.shape.batch + place.batch) * to.heads;
  const TensorRef part{
      to.partial + (sequence + place.head) * to.len * to.dim, 0, 0, to.dim, ElementKind::fp32, to.dim % 4 == 0};
  const TensorRef t = in_parts ? part : to.t;
  __syncthreads();
  Join::put(values, results, factor);
  if (p.split.in_cluster) {
    cluster_barrier();
  } else {
    __syncthreads();
  }
  const Join join(values, p.split, place.part);
  Range rows = p.split.in_cluster ? join.rows : Join::all_rows();
  rows.end = join.column < to.dim ? min(rows.end, to.len - first_row) : 0;
  const std::int64_t offset = place.batch * t.batch + place.head * t.head;
#pragma unroll 1
  for (int row = rows.begin; row < rows.end; row += Join::kRowsAtOnce) {
    float sum[4] = {};
    if (p.split.in_cluster) {
      float4 found[kMaxCluster];
      join.read(found, row, to.dim);
#pragma unroll
      for (const float4& value : found) Join::add(sum, value, 1.0f);
    } else {
      Join::add(sum, *reinterpret_cast<const float4*>(values + row * Join::kPitch + join.column), 1.0f);
    }
    store<typename Core::Element, 4>(t, offset + (first_row + row) * t.row, join.column, to.dim,
                                     p.accumulate && !in_parts, sum);
  }
  if (p.split.in_cluster) cluster_barrier_after_reading();  // others may still read this block's shared memory
}

}  // namespace fovea::cuda::any

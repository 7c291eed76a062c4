// What the blocks of threads of a cluster found of the same rows, added in the order of the blocks: each makes the sum
// of its share of the rows, through the others' shared memory.
#pragma once

#include <cstdint>

#include "cuda/any/core_of.cuh"
#include "cuda/any/parts.cuh"
#include "cuda/ptx/cluster.cuh"

namespace fovea::cuda::any {

template <class Core>
struct ClusterJoin {
  static constexpr TileShape kTile = Core::kTile;
  static constexpr int kPitch = kTile.dim + 4;  // floats of a row
  static constexpr int kFloats = kTile.rows() * kPitch;
  static constexpr int kGroups = kTile.dim / 4;  // a thread adds four neighbouring columns
  static constexpr int kRowsAtOnce = kTile.threads() / kGroups;
  static_assert(kTile.threads() % kGroups == 0);

  std::uint32_t address;  // of the values
  int rows, part;         // rows of a share, and which one is this block's
  int column = static_cast<int>(threadIdx.x) % kGroups * 4;

  __device__ __forceinline__ ClusterJoin(const float* values, int parts, int own)
      : address(shared_address(values)), rows(kTile.rows() / parts), part(own) {}

  // Before the barrier: this block's results.
  static __device__ __forceinline__ void put(float* values, const typename Core::Results& results, float factor) {
#pragma unroll
    for (int i = 0; i < Core::kRows; ++i) {
#pragma unroll
      for (int j = 0; j < Core::kColumns; ++j) values[Core::row(i) * kPitch + Core::column(j)] = results[i][j] * factor;
    }
  }

  // This thread's rows, every kRowsAtOnce-th.
  __device__ __forceinline__ int first_row() const { return part * rows + static_cast<int>(threadIdx.x) / kGroups; }
  __device__ __forceinline__ int end_row() const { return (part + 1) * rows; }

  // After it: what the n-th block found of this thread's columns.
  __device__ __forceinline__ void add(float (&sum)[4], int row, int n, float weight) const {
    const float4 value = ptx::load_cluster_float4(
        ptx::address_in_block(address + 4 * static_cast<std::uint32_t>(row * kPitch + column), n));
    sum[0] = fmaf(weight, value.x, sum[0]), sum[1] = fmaf(weight, value.y, sum[1]);
    sum[2] = fmaf(weight, value.z, sum[2]), sum[3] = fmaf(weight, value.w, sum[3]);
  }
};

// A gradient whose parts a cluster found, times `factor`: rows from `first_row` of `t`, whose rows end at `len` and
// columns at `dim`. `values` is shared memory that this block of threads may still be reading.
template <class Core>
__device__ __forceinline__ void join_cluster_gradient(float* values, const typename Core::Results& results,
                                                      float factor, const Split& split, int part, const TensorRef& t,
                                                      std::int64_t offset, int first_row, int len, int dim,
                                                      bool accumulate) {
  using Join = ClusterJoin<Core>;
  __syncthreads();
  Join::put(values, results, factor);
  ptx::cluster_barrier();
  const Join join(values, split.splits, part);
  for (int row = join.first_row(); row < join.end_row() && first_row + row < len; row += Join::kRowsAtOnce) {
    float sum[4] = {};
#pragma unroll 4
    for (int n = 0; n < split.splits; ++n) join.add(sum, row, n, 1.0f);
    store<typename Core::Element, 4>(t, offset + (first_row + row) * t.row, join.column, dim, accumulate, sum);
  }
  ptx::cluster_barrier();  // others may still read this block's shared memory
}

}  // namespace fovea::cuda::any

// A warp's short row: which columns its threads hold, and code for each number of blocks of columns with keys. A row
// waits for memory most of its time, hence many warps of few registers; what bounds such a pass then are instructions.
#pragma once

#include <type_traits>

#include "baselines/cuda/short_rows.h"
#include "cuda/ptx/grid_dependency.cuh"

namespace fovea::cuda::baselines {

constexpr int kBlock = 128;  // columns of a warp's vectors
constexpr int kBlocks = kShortRow / kBlock;
constexpr int kAtOnce = 12;  // thread blocks per SM, that is 48 warps

// Columns count from the thread's first one.
struct ShortRow {
  unsigned sequence, query;
  int thread;
  int seen;    // columns with keys
  int length;  // columns

  __device__ __forceinline__ ShortRow(const ShortRows& rows, unsigned row)
      : sequence(quotient(row, rows.by_len_q)), thread(static_cast<int>(threadIdx.x % 32)) {
    query = row - sequence * rows.len_q;
    seen = min(rows.len_k, static_cast<int>(query) + rows.window_end) - 4 * thread;
    length = rows.len_k - 4 * thread;
  }
  template <class Element>
  __device__ __forceinline__ Element* of(const ShortMatrix& m) const {
    return static_cast<Element*>(m.data) + std::uint64_t{sequence} * m.head + std::uint64_t{query} * m.row;
  }
  template <class Element>
  __device__ __forceinline__ Element* columns(const ShortMatrix& m) const {
    return of<Element>(m) + 4 * thread;
  }
};

template <int kCount>
using Live = std::integral_constant<int, kCount>;

// A kernel's whole work: `pass(row, Live<n>())` for this warp's row, n of whose blocks have keys; a row without keys
// has one, of which it sees nothing.
template <class Pass>
__device__ __forceinline__ void for_row_of_warp(const ShortRows& rows, Pass pass) {
  ptx::griddepcontrol_wait();
  const unsigned index = blockIdx.x * (kShortRowThreads / 32) + threadIdx.x / 32;
  if (index >= rows.count) return;
  const ShortRow row(rows, index);
  const int seen = row.seen + 4 * row.thread;
  if (seen <= kBlock) return pass(row, Live<1>());
  if (seen <= 2 * kBlock) return pass(row, Live<2>());
  if (seen <= 3 * kBlock) return pass(row, Live<3>());
  return pass(row, Live<kBlocks>());
}

// One of kLive blocks: the last has keys only up to some thread.
template <int kLive>
__device__ __forceinline__ bool has_keys(const ShortRow& row, int block) {
  return block + 1 < kLive || block * kBlock < row.seen;
}

}  // namespace fovea::cuda::baselines

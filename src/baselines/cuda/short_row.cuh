// A warp's short row: which columns its threads hold, and code for each number of blocks of columns with keys. A row
// waits for memory most of its time, hence many warps of few registers; what bounds such a pass then are instructions.
#pragma once

#include <type_traits>

#include "baselines/cuda/short_rows.h"

namespace fovea::cuda::baselines {

constexpr int kBlock = 128;  // columns of a warp's vectors
constexpr int kBlocks = kShortRow / kBlock;
constexpr int kAtOnce = 12;  // blocks of threads: 48 warps on a multiprocessor

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

__device__ __forceinline__ unsigned short_row_of_warp() {
  return blockIdx.x * (kShortRowThreads / 32) + threadIdx.x / 32;
}

template <int kCount>
using Live = std::integral_constant<int, kCount>;

// How many blocks have keys; a row without keys has one, of which it sees nothing.
template <class Pass>
__device__ __forceinline__ void with_live_blocks(const ShortRow& row, Pass pass) {
  const int seen = row.seen + 4 * row.thread;
  if (seen <= kBlock) return pass(Live<1>());
  if (seen <= 2 * kBlock) return pass(Live<2>());
  if (seen <= 3 * kBlock) return pass(Live<3>());
  return pass(Live<kBlocks>());
}

// One of kLive blocks: the last has keys only up to some thread.
template <int kLive>
__device__ __forceinline__ bool has_keys(const ShortRow& row, int block) {
  return block + 1 < kLive || block * kBlock < row.seen;
}

}  // namespace fovea::cuda::baselines

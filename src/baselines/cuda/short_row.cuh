// A warp's short row: the columns that its threads hold, and code for each number of segments with visible keys. A row
// mostly waits for memory, so many warps with few registers run at once. Then instructions bound the pass.
#pragma once

#include <type_traits>

#include "baselines/cuda/short_rows.h"
#include "cuda/ptx/grid_dependency.cuh"

namespace fovea::cuda::baselines {

constexpr int kSegment = 128;  // columns: one vector of four per thread of a warp
constexpr int kSegments = kShortRow / kSegment;
constexpr int kCtasPerSm = 12;  // 48 warps

// Columns are counted from the thread's first one.
struct ShortRow {
  unsigned sequence, query;
  int thread;
  int seen;    // columns with visible keys
  int length;  // all columns

  __device__ __forceinline__ ShortRow(const ShortRows& rows, unsigned row)
      : sequence(quotient(row, rows.len_q_divmod)), thread(static_cast<int>(threadIdx.x % 32)) {
    query = row - sequence * rows.len_q;
    seen = min(rows.len_k, static_cast<int>(query) + rows.window_end) - 4 * thread;
    length = rows.len_k - 4 * thread;
  }
  template <class Element, class Pointer>
  __device__ __forceinline__ Element* of(const BasicShortMatrix<Pointer>& m) const {
    return static_cast<Element*>(m.data) + std::uint64_t{sequence} * m.head_stride +
           std::uint64_t{query} * m.row_stride;
  }
  template <class Element, class Pointer>
  __device__ __forceinline__ Element* columns(const BasicShortMatrix<Pointer>& m) const {
    return of<Element>(m) + 4 * thread;
  }
};

template <int kCount>
using Live = std::integral_constant<int, kCount>;

// The body of a kernel: calls pass(row, Live<n>()) for this warp's row, where n is its number of segments with visible
// keys. A fully masked row has n = 1.
template <class Pass>
__device__ __forceinline__ void for_row_of_warp(const ShortRows& rows, Pass pass) {
  ptx::griddepcontrol_wait();
  const unsigned index = blockIdx.x * (kShortRowThreads / 32) + threadIdx.x / 32;
  if (index >= rows.count) return;
  const ShortRow row(rows, index);
  const int seen = row.seen + 4 * row.thread;
  if (seen <= kSegment) return pass(row, Live<1>());
  if (seen <= 2 * kSegment) return pass(row, Live<2>());
  if (seen <= 3 * kSegment) return pass(row, Live<3>());
  return pass(row, Live<kSegments>());
}

// Whether the thread has visible keys in a segment. Only the last of kLive segments may have none.
template <int kLive>
__device__ __forceinline__ bool has_keys(const ShortRow& row, int segment) {
  return segment + 1 < kLive || segment * kSegment < row.seen;
}

}  // namespace fovea::cuda::baselines

// A row of scores split among threads: the columns that each thread holds, loads and stores.
#pragma once

#include <cstdint>

#include "baselines/cuda/row_passes.h"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/arithmetic.cuh"

namespace fovea::cuda::baselines {

// The rows of a thread block: one, or one per warp.
struct RowCursor {
  std::int64_t row;
  int thread;  // index among the row's threads

  __device__ __forceinline__ explicit RowCursor(int threads) {
    row = static_cast<std::int64_t>(blockIdx.x) * rows_of(blockDim.x, threads) + rows_of(threadIdx.x, threads);
    thread = static_cast<int>(threadIdx.x) & (threads - 1);
  }
  __device__ __forceinline__ void advance(int threads) {
    row += static_cast<std::int64_t>(gridDim.x) * rows_of(blockDim.x, threads);
  }

 private:
  static __device__ __forceinline__ int rows_of(unsigned count, int threads) {
    return static_cast<int>(count >> (__ffs(threads) - 1));  // count / threads, since `threads` is a power of two
  }
};

// Avoids 64-bit divisions, which take a noticeable part of the time of a row of a few hundred columns.
__device__ __forceinline__ std::int64_t quotient(std::int64_t value, int divisor) {
  if (value <= 0xffffffffll) return static_cast<unsigned>(value) / static_cast<unsigned>(divisor);
  return value / divisor;
}

// A row of the pass, and its place in a matrix.
struct Row {
  std::int64_t index, sequence;  // sequence: index of (batch, head)
  int query;

  __device__ __forceinline__ Row(const RowPass& p, std::int64_t row) : index(row), sequence(quotient(row, p.len_q)) {
    query = static_cast<int>(row - sequence * p.len_q);
  }
  template <class Element, class Pointer>
  __device__ __forceinline__ Element* of(const BasicRowMatrix<Pointer>& m) const {
    return static_cast<Element*>(m.data) + sequence * m.head_stride + query * m.row_stride;
  }
};

// The row sees the keys before this one; at most 0 if it sees none.
__device__ __forceinline__ int end_of_keys(const RowPass& p, const Row& row) {
  return p.masked ? min(p.len_k, row.query + p.window_end) : p.len_k;
}

// The row's element of a tensor [batch, heads_q, len_q, 1].
template <class Float, class Pointer>
__device__ __forceinline__ Float* element_of_row(const BasicTensorRef<Pointer>& t, const RowPass& p, const Row& row) {
  const std::int64_t batch = quotient(row.sequence, p.heads_q);
  return static_cast<Float*>(t.data) + batch * t.batch_stride + (row.sequence - batch * p.heads_q) * t.head_stride +
         row.query * t.row_stride;
}

__device__ __forceinline__ float shuffle_xor(float value, int step) {
  return __shfl_xor_sync(0xffffffffu, value, step);
}
__device__ __forceinline__ float2 shuffle_xor(float2 value, int step) {
  return {shuffle_xor(value.x, step), shuffle_xor(value.y, step)};
}

// Reduces over the threads of a row; `combine` combines two values.
template <class Value, class Combine>
__device__ __forceinline__ Value reduce_row(Value value, int threads, Combine combine) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value = combine(value, shuffle_xor(value, step));
  if (threads == 32) return value;
  __shared__ Value of_warp[kMostRowThreads / 32];
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  value = of_warp[0];
  for (int warp = 1; warp < threads / 32; ++warp) value = combine(value, of_warp[warp]);
  __syncthreads();  // the next reduction may write now
  return value;
}

__device__ __forceinline__ float row_sum(float value, int threads) {
  return reduce_row(value, threads, [](float a, float b) { return a + b; });
}
__device__ __forceinline__ float2 row_sums(float2 values, int threads) {
  return reduce_row(values, threads, [](float2 a, float2 b) { return float2{a.x + b.x, a.y + b.y}; });
}
__device__ __forceinline__ float row_max(float value, int threads) {
  return reduce_row(value, threads, [](float a, float b) { return fmaxf(a, b); });
}

template <int kVector>
__device__ __forceinline__ void read(float (&values)[kVector], const float* from) {
  if constexpr (kVector == 4)
    *reinterpret_cast<float4*>(values) = *reinterpret_cast<const float4*>(from);
  else
    values[0] = *from;
}

template <int kVector, class Element>
__device__ __forceinline__ void read(float (&values)[kVector], const Element* from) {
  if constexpr (kVector == 4) {
    const uint2 pairs = *reinterpret_cast<const uint2*>(from);
    const Element* const four = reinterpret_cast<const Element*>(&pairs);
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = static_cast<float>(four[i]);
  } else {
    values[0] = static_cast<float>(*from);
  }
}

template <int kVector>
__device__ __forceinline__ void write(float* to, const float (&values)[kVector]) {
  if constexpr (kVector == 4)
    *reinterpret_cast<float4*>(to) = {values[0], values[1], values[2], values[3]};
  else
    *to = values[0];
}

template <int kVector, class Element>
__device__ __forceinline__ void write(Element* to, const float (&values)[kVector]) {
  if constexpr (kVector == 4)
    *reinterpret_cast<uint2*>(to) = {ptx::pack<Element>(values[0], values[1]),
                                     ptx::pack<Element>(values[2], values[3])};
  else
    *to = Element(values[0]);
}

// A thread's columns of a chunk of its row: kSteps vectors of kVector neighbours. The vectors of a warp's threads are
// adjacent, and a thread's vectors have constant distances. Segments of columns after the last key are skipped, because
// instructions would otherwise bound these passes.
template <int kVector, int kSteps>
struct ThreadColumns {
  static constexpr int kStep = 32 * kVector, kSegment = 128;  // columns of a warp
  static constexpr int kStepsPerSegment = kSegment / kStep, kSegments = kSteps / kStepsPerSegment;

  alignas(16) float values[kSteps][kVector];
  int first = 0;  // column of the thread
  int live = 0;   // segments with keys

  static __device__ __forceinline__ int columns(int threads) { return threads * kVector * kSteps; }
  static __device__ __forceinline__ int chunks(int length, int threads) {
    return max(1, (length + columns(threads) - 1) / columns(threads));
  }
  __device__ __forceinline__ void set_columns(int end, int chunk, int thread, int threads) {
    const int of_warp = chunk * columns(threads) + (thread & ~31) * kVector * kSteps;
    first = of_warp + (thread & 31) * kVector;
    live = (end - of_warp + kSegment - 1) / kSegment;
  }

  // Loads columns before `end` and sets the others of their segment to `fill`.
  template <class Element>
  __device__ __forceinline__ void load(const Element* row, int end, float fill) {
    const Element* const from = row + first;
    const int left = end - first;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (s * kStep < left) read<kVector>(values[s], from + s * kStep);
    }
#pragma unroll
    for (int segment = 0; segment < kSegments; ++segment) {
      if (segment + 1 != live) [[likely]]
        continue;  // only the last live segment can hold columns after `end`
#pragma unroll
      for (int s = segment * kStepsPerSegment; s < (segment + 1) * kStepsPerSegment; ++s) {
#pragma unroll
        for (int i = 0; i < kVector; ++i) values[s][i] = s * kStep + i < left ? values[s][i] : fill;
      }
    }
  }

  // Stores the columns, with zeros after the last visible key.
  template <class Element>
  __device__ __forceinline__ void store(Element* row, int length) const {
    Element* const to = row + first;
    const int left = length - first;
    const float zeros[kVector]{};
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (s * kStep >= left) break;
      if (s / kStepsPerSegment < live)
        write<kVector>(to + s * kStep, values[s]);
      else
        write<kVector>(to + s * kStep, zeros);
    }
  }

  template <class Function>
  __device__ __forceinline__ void each(Function function) {
#pragma unroll
    for (int segment = 0; segment < kSegments; ++segment) {
      if (segment >= live) break;
#pragma unroll
      for (int s = segment * kStepsPerSegment; s < (segment + 1) * kStepsPerSegment; ++s) {
#pragma unroll
        for (int i = 0; i < kVector; ++i) function(s, i);
      }
    }
  }
};

}  // namespace fovea::cuda::baselines

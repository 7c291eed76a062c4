// A row of scores cut among threads: who holds which columns, and what is read and written of them.
#pragma once

#include <cstdint>

#include "baselines/cuda/row_passes.h"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/arithmetic.cuh"

namespace fovea::cuda::baselines {

struct Keys {
  int begin, end;
};

// The rows of a block of threads: one, or one for each warp of it.
struct RowCursor {
  std::int64_t row;
  int thread;  // of the row's

  __device__ __forceinline__ explicit RowCursor(int threads) {
    row = static_cast<std::int64_t>(blockIdx.x) * rows_at_once(threads) + static_cast<int>(threadIdx.x) / threads;
    thread = static_cast<int>(threadIdx.x) & (threads - 1);
  }
  __device__ __forceinline__ void advance(int threads) {
    row += static_cast<std::int64_t>(gridDim.x) * rows_at_once(threads);
  }

 private:
  static __device__ __forceinline__ int rows_at_once(int threads) { return static_cast<int>(blockDim.x) / threads; }
};

// Divisions of 64 bits cost a row of a few hundred columns a part of its time.
__device__ __forceinline__ std::int64_t quotient(std::int64_t value, int divisor) {
  if (value <= 0xffffffffll) return static_cast<unsigned>(value) / static_cast<unsigned>(divisor);
  return value / divisor;
}

__device__ __forceinline__ Keys keys_of_row(const RowPass& p, std::int64_t row) {
  if (!p.masked) return {0, p.len_k};
  const int query = static_cast<int>(row - quotient(row, p.len_q) * p.len_q);
  return {max(0, query + p.window_begin), min(p.len_k, query + p.window_end)};
}

__device__ __forceinline__ float* lse_of_row(const RowPass& p, std::int64_t row) {
  const std::int64_t sequence = quotient(row, p.len_q), batch = quotient(sequence, p.heads_q);
  return static_cast<float*>(p.lse.data) + batch * p.lse.batch + (sequence - batch * p.heads_q) * p.lse.head +
         (row - sequence * p.len_q) * p.lse.row;
}

// Over the threads of a row; `combine` of two, its neutral element 0 or what every thread has at least.
template <class Combine>
__device__ __forceinline__ float over_row(float value, int threads, Combine combine) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(0xffffffffu, value, step));
  if (threads == 32) return value;
  __shared__ float of_warp[16];
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  value = of_warp[0];
  for (int warp = 1; warp < threads / 32; ++warp) value = combine(value, of_warp[warp]);
  __syncthreads();  // the next one may write
  return value;
}

__device__ __forceinline__ float row_sum(float value, int threads) {
  return over_row(value, threads, [](float a, float b) { return a + b; });
}
__device__ __forceinline__ float row_max(float value, int threads) {
  return over_row(value, threads, [](float a, float b) { return fmaxf(a, b); });
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

// A thread's columns of a chunk of its row: kSteps vectors of kVector neighbours. A warp's threads lie side by side,
// and its vectors behind each other: they differ by constants.
template <int kVector, int kSteps>
struct Part {
  alignas(16) float values[kSteps][kVector];

  static __device__ __forceinline__ int columns(int threads) { return threads * kVector * kSteps; }
  static __device__ __forceinline__ int chunks(int length, int threads) {
    return max(1, (length + columns(threads) - 1) / columns(threads));
  }
  static __device__ __forceinline__ int first_column(int chunk, int thread, int threads) {
    return chunk * columns(threads) + (thread & ~31) * kVector * kSteps + (thread & 31) * kVector;
  }

  // Columns of the keys as they are, `otherwise` elsewhere; nothing else is read.
  template <class Element>
  __device__ __forceinline__ void load(const Element* row, Keys keys, float otherwise, int chunk, int thread,
                                       int threads) {
    const int begin = first_column(chunk, thread, threads);
    const Element* const from = row + begin;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int first = begin + s * 32 * kVector;
      if (first < keys.end && first + kVector > keys.begin) {
        read<kVector>(values[s], from + s * 32 * kVector);
#pragma unroll
        for (int i = 0; i < kVector; ++i)
          values[s][i] = first + i < keys.end && first + i >= keys.begin ? values[s][i] : otherwise;
      } else {
#pragma unroll
        for (int i = 0; i < kVector; ++i) values[s][i] = otherwise;
      }
    }
  }

  template <class Element>
  __device__ __forceinline__ void store(Element* row, int length, int chunk, int thread, int threads) const {
    const int begin = first_column(chunk, thread, threads);
    Element* const to = row + begin;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (begin + s * 32 * kVector < length) write<kVector>(to + s * 32 * kVector, values[s]);
    }
  }

  template <class Function>
  __device__ __forceinline__ void each(Function function) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) function(values[s][i]);
    }
  }
};

}  // namespace fovea::cuda::baselines

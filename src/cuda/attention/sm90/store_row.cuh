// Stores of one row of a wgmma accumulator: `row` 0 is the thread's first row, 1 the row eight further; `lane` is one
// of the four that share it.
#pragma once

#include "cuda/device/store.cuh"
#include "cuda/ptx/arithmetic.cuh"

namespace fovea::cuda::sm90 {

// Four lanes hold four words each of 4 x 4 neighbouring words of a row: word i of lane t is word 4 i + t. Afterwards
// lane t holds words 4 t to 4 t + 3.
__device__ __forceinline__ void transpose_quad(std::uint32_t (&words)[4], int lane) {
#pragma unroll
  for (int step = 1; step <= 2; step *= 2) {
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & step) != 0) continue;
      std::uint32_t& low = words[i];
      std::uint32_t& high = words[i + step];
      const std::uint32_t received = __shfl_xor_sync(0xffffffffu, upper ? low : high, step);
      (upper ? low : high) = received;
    }
  }
}

// One row in whole 16-byte stores, which cover whole sectors of 32 bytes.
template <class Element, int kCount>
__device__ __forceinline__ void store_row_16bit(const TensorRef& t, std::int64_t offset, const float (&out)[kCount],
                                                int row, float factor, int dim, int lane, bool valid) {
  auto* to = static_cast<Element*>(t.data) + offset;
#pragma unroll
  for (int column = 0; column < 2 * kCount; column += 32) {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = column / 2 + 4 * i + 2 * row;
      words[i] = ptx::pack<Element>(out[at] * factor, out[at + 1] * factor);
    }
    transpose_quad(words, lane);
    const int first = column + 8 * lane;
    if (valid && first < dim) *reinterpret_cast<uint4*>(to + first) = {words[0], words[1], words[2], words[3]};
  }
}

// One row in stores of two columns: fp32, or rows that are not aligned. Adds to fp32 memory if `accumulate`.
template <class Element, int kCount>
__device__ __forceinline__ void store_row_pairs(const TensorRef& t, std::int64_t offset, const float (&out)[kCount],
                                                int row, float factor, int dim, int lane, bool accumulate) {
#pragma unroll
  for (int i = 2 * row; i < kCount; i += 4) {
    const float pair[2] = {out[i] * factor, out[i + 1] * factor};
    const int column = i / 4 * 8 + 2 * lane;
    if (column < dim) store<Element, 2>(t, offset, column, dim, accumulate, pair);
  }
}

// Stores both rows of the thread, if `valid`. `offsets`: of the rows in the tensor. Every value is multiplied by
// `factor`.
template <class Element, int kCount>
__device__ __forceinline__ void store_rows(const TensorRef& t, const std::int64_t (&offsets)[2], const bool (&valid)[2],
                                           const float (&values)[kCount], float factor, int dim, bool accumulate) {
  const bool whole = t.kind != ElementKind::fp32 && t.aligned && dim % 8 == 0;
  const int lane = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    if (whole)
      store_row_16bit<Element>(t, offsets[row], values, row, factor, dim, lane, valid[row]);
    else if (valid[row])
      store_row_pairs<Element>(t, offsets[row], values, row, factor, dim, lane, accumulate);
  }
}

}  // namespace fovea::cuda::sm90

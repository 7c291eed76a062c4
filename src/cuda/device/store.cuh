// Writing results: kVector neighbouring columns of one row, in the type that was asked for.
#pragma once

#include <cstdint>

#include "cuda/device/tensor_ref.h"
#include "cuda/ptx/arithmetic.cuh"

namespace fovea::cuda {

template <class Element>
__device__ __forceinline__ Element from_float(float value) {
  return Element(value);
}

// Neighbours that one instruction loads or stores.
template <class Word, int kCount>
struct alignas(kCount * sizeof(Word)) Together {
  Word words[kCount];
};

// Columns [column, column + kVector) of `row`, those below `dim` only; adds to what is there if `accumulate`.
template <int kVector>
__device__ __forceinline__ void store_fp32(float* row, int column, int dim, bool vector, bool accumulate,
                                           const float (&values)[kVector]) {
  float* to = row + column;
  if (vector && column + kVector <= dim) {
    auto& place = *reinterpret_cast<Together<float, kVector>*>(to);
    Together<float, kVector> sum{};
    if (accumulate) sum = place;
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum.words[i] = accumulate ? sum.words[i] + values[i] : values[i];
    place = sum;
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (column + i < dim) to[i] = accumulate ? to[i] + values[i] : values[i];
    }
  }
}

template <class Element, int kVector>
__device__ __forceinline__ void store_16bit(Element* row, int column, int dim, bool vector,
                                            const float (&values)[kVector]) {
  Element* to = row + column;
  if (vector && column + kVector <= dim) {
    Together<std::uint32_t, kVector / 2> packed;
#pragma unroll
    for (int i = 0; i < kVector; i += 2) packed.words[i / 2] = ptx::pack<Element>(values[i], values[i + 1]);
    *reinterpret_cast<Together<std::uint32_t, kVector / 2>*>(to) = packed;
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (column + i < dim) to[i] = from_float<Element>(values[i]);
    }
  }
}

// `row` of a tensor at (batch, head): Element, or fp32 whatever Element is.
template <class Element, int kVector>
__device__ __forceinline__ void store(const TensorRef& t, std::int64_t row_offset, int column, int dim, bool accumulate,
                                      const float (&values)[kVector]) {
  if constexpr (sizeof(Element) == 2) {
    if (t.kind != ElementKind::fp32) {
      store_16bit<Element, kVector>(static_cast<Element*>(t.data) + row_offset, column, dim, t.vector, values);
      return;
    }
  }
  store_fp32<kVector>(static_cast<float*>(t.data) + row_offset, column, dim, t.vector, accumulate, values);
}

}  // namespace fovea::cuda

// Stores of kVector neighbouring columns of one row, in the output's type.
#pragma once

#include <cstdint>

#include "cuda/device/tensor_ref.h"
#include "cuda/ptx/arithmetic.cuh"

namespace fovea::cuda {

// Neighbouring words that one instruction loads or stores.
template <class Word, int kCount>
struct alignas(kCount * sizeof(Word)) Vector {
  Word words[kCount];
};

// Columns [column, column + kVector) of `row`, only those below `dim`. Adds to memory if `accumulate`.
template <int kVector>
__device__ __forceinline__ void store_fp32(float* row, int column, int dim, bool aligned, bool accumulate,
                                           const float (&values)[kVector]) {
  float* to = row + column;
  if (aligned && column + kVector <= dim) {
    auto& target = *reinterpret_cast<Vector<float, kVector>*>(to);
    Vector<float, kVector> sum{};
    if (accumulate) sum = target;
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum.words[i] = accumulate ? sum.words[i] + values[i] : values[i];
    target = sum;
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (column + i < dim) to[i] = accumulate ? to[i] + values[i] : values[i];
    }
  }
}

template <class Element, int kVector>
__device__ __forceinline__ void store_16bit(Element* row, int column, int dim, bool aligned,
                                            const float (&values)[kVector]) {
  Element* to = row + column;
  if (aligned && column + kVector <= dim) {
    Vector<std::uint32_t, kVector / 2> packed;
#pragma unroll
    for (int i = 0; i < kVector; i += 2) packed.words[i / 2] = ptx::pack<Element>(values[i], values[i + 1]);
    *reinterpret_cast<Vector<std::uint32_t, kVector / 2>*>(to) = packed;
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (column + i < dim) to[i] = Element(values[i]);
    }
  }
}

// Stores to a tensor whose elements are Element or fp32. `row_offset` includes batch and head. Only fp32 tensors
// accumulate: the contract refuses others.
template <class Element, int kVector>
__device__ __forceinline__ void store(const TensorRef& t, std::int64_t row_offset, int column, int dim, bool accumulate,
                                      const float (&values)[kVector]) {
  if constexpr (sizeof(Element) == 2) {
    if (t.kind != ElementKind::fp32) {
      store_16bit<Element, kVector>(static_cast<Element*>(t.data) + row_offset, column, dim, t.aligned, values);
      return;
    }
  }
  store_fp32<kVector>(static_cast<float*>(t.data) + row_offset, column, dim, t.aligned, accumulate, values);
}

}  // namespace fovea::cuda

// wgmma accumulators: clearing them, and packing them as A operands. Layout: ptx/wgmma_wide.cuh.
#pragma once

#include <cstdint>

#include "cuda/ptx/arithmetic.cuh"

namespace fovea::cuda::sm90 {

// Written so that the compiler makes no memset of it, which would put the array into local memory.
template <int kCount>
__device__ __forceinline__ void set_zero(float (&c)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("mov.b32 %0, 0;" : "=f"(c[i]));
}

// An accumulator as A operands of 16 columns each: both have the same layout.
template <class Element, int kCount>
__device__ __forceinline__ void pack_operand(std::uint32_t (&to)[kCount / 2], const float (&from)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) to[i] = ptx::pack<Element>(from[2 * i], from[2 * i + 1]);
}

}  // namespace fovea::cuda::sm90

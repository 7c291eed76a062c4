// Tensor-core MMA of one warp. PTX ISA, "Matrix multiply-accumulate operation using mma instruction".
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace fovea::cuda::ptx {

// c += a b with a [16, 16] row-major, b [16, 8] column-major, c [16, 8]. Lane 4g + t, with t < 4, holds
// - a0, a1: columns 2t and 2t + 1 of rows g and g + 8; a2, a3: columns 2t + 8 and 2t + 9 of the same rows
// - b0: rows 2t and 2t + 1 of column g; b1: rows 2t + 8 and 2t + 9 of the same column
// - c0, c1: columns 2t and 2t + 1 of row g; c2, c3: the same columns of row g + 8
// "mma.m16n8k16", sm_80 and later.
template <class Element>
__device__ __forceinline__ void mma_m16n8k16(float& c0, float& c1, float& c2, float& c3, const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1);

template <>
__device__ __forceinline__ void mma_m16n8k16<__nv_bfloat16>(float& c0, float& c1, float& c2, float& c3,
                                                            const std::uint32_t (&a)[4], std::uint32_t b0,
                                                            std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void mma_m16n8k16<__half>(float& c0, float& c1, float& c2, float& c3,
                                                     const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace fovea::cuda::ptx

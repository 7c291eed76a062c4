// Storing 8x8 matrices of 16-bit elements from a warp's registers to shared memory.
// PTX ISA, "Warp-level matrix store instruction: stmatrix".
#pragma once

#include <cstdint>

namespace fovea::cuda::ptx {

// Lanes 8i..8i+7 give the addresses of the eight 16-byte rows of matrix i. Register i of lane l has elements
// 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of matrix i. "stmatrix.x4", sm_90.
__device__ __forceinline__ void stmatrix_x4(std::uint32_t shared_address, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

}  // namespace fovea::cuda::ptx

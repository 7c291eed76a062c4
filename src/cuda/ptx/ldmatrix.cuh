// Loading 8x8 matrices of 16-bit elements from shared memory into a warp's registers.
// PTX ISA, "Warp-level matrix load instruction: ldmatrix".
#pragma once

#include <cstdint>

namespace fovea::cuda::ptx {

// Lanes 8i..8i+7 give the addresses of the eight 16-byte rows of matrix i. Register i of lane l receives elements
// 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of matrix i. "ldmatrix.x4", sm_75 and later.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], std::uint32_t shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address));
}

// The same with every matrix transposed: register i of lane l receives rows 2 (l % 4) and
// 2 (l % 4) + 1 of column l / 4. "ldmatrix.x4.trans", sm_75 and later.
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&r)[4], std::uint32_t shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address));
}

}  // namespace fovea::cuda::ptx

// Accesses to global memory that order others around them, for hand-overs between thread blocks. PTX ISA, "Memory
// Consistency Model", "ld", "red".
#pragma once

namespace fovea::cuda::ptx {

// What a thread released at this address before is visible afterwards. "ld.acquire.gpu", sm_70.
__device__ __forceinline__ unsigned load_acquire(const unsigned* from) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

// Adds after this thread's earlier writes are visible. "red.release.gpu.add", sm_70.
__device__ __forceinline__ void add_release(unsigned* to, unsigned value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

// Adds four neighbouring floats; `to`: a multiple of 16 bytes. "red.relaxed.gpu.add.v4.f32", sm_90.
__device__ __forceinline__ void add_float4(float* to, float a, float b, float c, float d) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}

}  // namespace fovea::cuda::ptx

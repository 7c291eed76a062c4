// Thread block index and thread index from special registers. PTX ISA, "Special registers".
#pragma once

namespace fovea::cuda::ptx {

// blockIdx.x, read again at every call, so that it need not stay in a register. "%ctaid".
__device__ __forceinline__ unsigned cta_index() {
  unsigned index;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
  return index;
}

// threadIdx.x, in the same way. "%tid".
__device__ __forceinline__ unsigned thread_index() {
  unsigned index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

}  // namespace fovea::cuda::ptx

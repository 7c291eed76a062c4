// Registers that tell a thread where it is. PTX ISA, "Special registers".
#pragma once

namespace fovea::cuda::ptx {

// blockIdx.x, read anew: what is computed from it needs no register in between. "%ctaid".
__device__ __forceinline__ unsigned block_index() {
  unsigned index;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
  return index;
}

// threadIdx.x, likewise. "%tid".
__device__ __forceinline__ unsigned thread_index() {
  unsigned index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

}  // namespace fovea::cuda::ptx

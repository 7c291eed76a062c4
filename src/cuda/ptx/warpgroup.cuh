// Warps of one thread block with different roles: registers, named barriers, the one thread of a warp that issues.
// PTX ISA, "setmaxnreg", "Parallel synchronization: bar", "elect.sync".
#pragma once

namespace fovea::cuda::ptx {

// Gives registers back, or waits for registers that others gave back. All warps of the warpgroup must call it, and the
// kernel needs __launch_bounds__(threads, 1). kRegisters: a multiple of 8 in [24, 256]. "setmaxnreg", sm_90a.
template <int kRegisters>
__device__ __forceinline__ void decrease_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void increase_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Waits until `threads` threads have arrived at barrier `id`, 1 to 15, including those that wait; id 0 is
// __syncthreads(). "bar.sync".
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Arrives without waiting. "bar.arrive".
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// True in one lane of a whole warp. "elect.sync", sm_90.
__device__ __forceinline__ bool elect_one() {
  int elected;
  asm volatile(
      "{\n"
      ".reg .pred one;\n"
      "elect.sync _|one, 0xffffffff;\n"
      "selp.b32 %0, 1, 0, one;\n"
      "}"
      : "=r"(elected));
  return elected != 0;
}

}  // namespace fovea::cuda::ptx

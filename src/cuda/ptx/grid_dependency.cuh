// A kernel that is placed before the one ahead of it in the stream has ended. PTX ISA, "Parallel synchronization:
// griddepcontrol". From sm_90 on; before, such kernels are launched as usual and both do nothing.
#pragma once

namespace fovea::cuda::ptx {

// The next kernel's blocks may be placed as soon as every block of this one has come here or ended.
// "griddepcontrol.launch_dependents", sm_90.
__device__ __forceinline__ void let_next_kernel_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the kernels ahead have ended and their writes can be read. Every kernel that is launched with
// Begin::early must come here: the kernel behind it relies on that. "griddepcontrol.wait", sm_90.
__device__ __forceinline__ void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace fovea::cuda::ptx

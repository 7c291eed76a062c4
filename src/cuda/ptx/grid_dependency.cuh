// Programmatic dependent launch (PDL): a kernel starts before the one ahead in its stream has ended. PTX ISA, "Parallel
// synchronization: griddepcontrol". From sm_90 on; on older devices kernels are serialized and both functions do
// nothing.
#pragma once

namespace fovea::cuda::ptx {

// The next kernel in the stream may start once every thread block of this kernel has called this or ended.
// "griddepcontrol.launch_dependents", sm_90.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the kernels ahead have ended and their writes are visible. A kernel that is launched with
// Dependency::programmatic must call this in at least one thread block. Otherwise it may end before the kernels
// ahead, and then the next kernel's wait does not cover them.
// "griddepcontrol.wait", sm_90.
__device__ __forceinline__ void griddepcontrol_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace fovea::cuda::ptx

// Asynchronous copies from global to shared memory. PTX ISA, "Data movement: cp.async".
#pragma once

#include <cstdint>

namespace fovea::cuda::ptx {

// Copies `bytes` (0 to 16) and fills the rest of the 16 with zeros; both addresses 16-byte aligned. "cp.async", sm_80.
__device__ __forceinline__ void cp_async_16(std::uint32_t shared_address, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address), "l"(global), "r"(bytes)
               : "memory");
}

// Copies `bytes` (0 to 4) and fills the rest of the 4 with zeros; both addresses 4-byte aligned. "cp.async", sm_80.
__device__ __forceinline__ void cp_async_4(std::uint32_t shared_address, const void* global, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address), "l"(global), "r"(bytes)
               : "memory");
}

// Commits this thread's copies so far as one group. "cp.async.commit_group", sm_80.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `kPending` of this thread's newest groups are in flight. "cp.async.wait_group", sm_80.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace fovea::cuda::ptx

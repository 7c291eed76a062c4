// Barriers in shared memory that count arrivals and bytes of bulk copies. PTX ISA, "Parallel synchronization:
// mbarrier". Used from sm_90 on.
#pragma once

#include <cstdint>

namespace fovea::cuda::ptx {

// A phase of the barrier ends after `arrivals` arrivals. "mbarrier.init", sm_80.
__device__ __forceinline__ void mbarrier_init(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialized barriers visible to bulk copies and to the cluster. A barrier of the threads must follow.
// "fence.mbarrier_init", sm_90.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// One arrival, with release semantics. "mbarrier.arrive", sm_80.
__device__ __forceinline__ void mbarrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// One arrival; the phase also waits for `bytes` of bulk copies. Call before the copies. "mbarrier.arrive.expect_tx",
// sm_90.
__device__ __forceinline__ void mbarrier_arrive_expect(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Waits for the end of the phase of this parity; phases count from 0. Parity 1 of a new barrier is over at once.
// "mbarrier.try_wait.parity", sm_90.
__device__ __forceinline__ void mbarrier_wait(std::uint32_t barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "WAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra WAIT;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

}  // namespace fovea::cuda::ptx

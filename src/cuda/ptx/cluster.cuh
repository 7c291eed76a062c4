// Thread block clusters: barriers and distributed shared memory. PTX ISA, "Parallel synchronization: barrier.cluster",
// "membar, fence", "Data movement: mapa, ld". From sm_90 on; code for older GPUs is never launched in clusters.
#pragma once

#include <cstdint>

namespace fovea::cuda::ptx {

// Releases only this thread's writes to its own thread block's shared memory. An arrive with release semantics would
// wait for writes to all memory. "fence.release.sync_restrict::shared::cta.cluster", sm_90, PTX 8.6.
__device__ __forceinline__ void cluster_release_shared() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.release.sync_restrict::shared::cta.cluster;" ::: "memory");
#endif
}

// Arrives without release. "barrier.cluster.arrive.relaxed.aligned", sm_90.
__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

// Waits until every thread of the cluster has arrived or exited. "barrier.cluster.wait.acquire.aligned", sm_90.
__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// The address of `shared_address` in the shared memory of the cluster's thread block `rank`.
// "mapa.shared::cluster.u32", sm_90.
__device__ __forceinline__ std::uint32_t cluster_address(std::uint32_t shared_address, int rank) {
  std::uint32_t address = shared_address;
#if __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address), "r"(rank));
#endif
  return address;
}

// "ld.shared::cluster.v2.f32", "ld.shared::cluster.v4.f32", sm_90.
__device__ __forceinline__ float2 load_cluster_float2(std::uint32_t address) {
  float2 value = {0.0f, 0.0f};
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "r"(address) : "memory");
#endif
  return value;
}
__device__ __forceinline__ float4 load_cluster_float4(std::uint32_t address) {
  float4 value = {0.0f, 0.0f, 0.0f, 0.0f};
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(address)
               : "memory");
#endif
  return value;
}

}  // namespace fovea::cuda::ptx

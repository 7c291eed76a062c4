// The tensor memory accelerator (TMA): copies of boxes between a tensor in global memory and shared memory. A tensor
// map (CUtensorMap) describes the tensor, the box and the swizzle. PTX ISA, "Data movement: cp.async.bulk.tensor",
// "cp.async.bulk". All from sm_90 on; one thread issues.
#pragma once

#include <cstdint>

namespace fovea::cuda::ptx {

// Policies for all of the lines, as "createpolicy.fractional" encodes them. The numbers are CUTLASS's
// (cute::TMA::CacheHintSm90); sm_90.
enum class CachePolicy : std::uint64_t {
  evict_normal = 0x1000000000000000,
  evict_first = 0x12F0000000000000,  // these lines make room before others
};

// Loads the box from element (x, y, z, w) on, x the dimension of stride 1. What lies outside the tensor arrives as
// zeros. All bytes of the box count in the barrier's phase. "cp.async.bulk.tensor.4d", sm_90.
__device__ __forceinline__ void tma_load_4d(std::uint32_t shared_address, const void* map, std::uint32_t barrier, int x,
                                            int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5,%6}], "
      "[%2];" ::"r"(shared_address),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

// The same with a policy for the lines that the L2 cache fetches (CachePolicy).
__device__ __forceinline__ void tma_load_4d(std::uint32_t shared_address, const void* map, std::uint32_t barrier, int x,
                                            int y, int z, int w, CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, "
      "{%3,%4,%5,%6}], [%2], %7;" ::"r"(shared_address),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "l"(static_cast<std::uint64_t>(policy))
      : "memory");
}

// The same for five dimensions, without a policy.
__device__ __forceinline__ void tma_load_5d(std::uint32_t shared_address, const void* map, std::uint32_t barrier, int x,
                                            int y, int z, int w, int v) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5,%6,%7}], "
      "[%2];" ::"r"(shared_address),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
      : "memory");
}

// Prefetches a box into the L2 cache. "cp.async.bulk.prefetch.tensor", sm_90.
__device__ __forceinline__ void tma_prefetch_4d(const void* map, int x, int y, int z, int w) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1,%2,%3,%4}];" ::"l"(map), "r"(x), "r"(y),
               "r"(z), "r"(w)
               : "memory");
}
__device__ __forceinline__ void tma_prefetch_5d(const void* map, int x, int y, int z, int w, int v) {
  asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global.tile [%0, {%1,%2,%3,%4,%5}];" ::"l"(map), "r"(x), "r"(y),
               "r"(z), "r"(w), "r"(v)
               : "memory");
}

// Stores a box; parts outside the tensor are dropped. Threads that wrote the box to shared memory must have called
// fence_proxy_async, and then a barrier. "cp.async.bulk.tensor.4d", sm_90.
__device__ __forceinline__ void tma_store_4d(const void* map, std::uint32_t shared_address, int x, int y, int z,
                                             int w) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2,%3,%4,%5}], [%1];" ::"l"(map),
               "r"(shared_address), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}

// Copies `bytes`, a multiple of 16, of consecutive memory; both addresses 16-byte aligned. "cp.async.bulk", sm_90.
__device__ __forceinline__ void bulk_load(std::uint32_t shared_address, const void* global, int bytes,
                                          std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}

// Commits this thread's stores so far as one group. "cp.async.bulk.commit_group", sm_90.
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until at most kPending of this thread's newest groups still read shared memory.
// "cp.async.bulk.wait_group.read", sm_90.
template <int kPending>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

}  // namespace fovea::cuda::ptx

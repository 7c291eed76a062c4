// Tensor-core MMA of a warpgroup. PTX ISA, "Asynchronous warpgroup level matrix multiply-accumulate instructions". They
// exist in sm_90a code only. fence_proxy_async may be called anywhere.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace fovea::cuda::ptx {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool kHasWgmma = true;
#else
constexpr bool kHasWgmma = false;
#endif

// Orders this thread's accesses to shared memory (and its cp.async copies that have arrived) before accesses of the
// async proxy after the next barrier. So wgmmas and TMA stores see its stores, and bulk copies do not overwrite what it
// still reads.
// "fence.proxy.async", sm_90.
__device__ __forceinline__ void fence_proxy_async() {
  if constexpr (kHasWgmma) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Call before a wgmma whose registers other instructions wrote. "wgmma.fence", sm_90a.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Commits the wgmmas so far as one group. "wgmma.commit_group", sm_90a.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most kPending of the newest groups are in flight. "wgmma.wait_group", sm_90a.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Keeps the compiler from moving accesses to a wgmma's registers across a fence or a wait.
template <int kColumns>
__device__ __forceinline__ void wgmma_fence_operand(float (&c)[2][kColumns]) {
#pragma unroll
  for (int j = 0; j < kColumns; ++j) asm volatile("" : "+f"(c[0][j]), "+f"(c[1][j])::"memory");
}

// Tiles that wgmma reads must start at multiples of this: a descriptor's base offset is 0, so the swizzle pattern of
// eight rows of 128 bytes must start at one. (512 would do for rows of 64 bytes.)
constexpr int kMatrixAlignment = 1024;

// Descriptor of a matrix in shared memory: rows of kRowBytes bytes (128 or 64) with the swizzle of that width. Groups
// of eight rows are `stride` bytes apart. `shared_address`: the start of such a group, plus 32 bytes per 16 columns.
// "Matrix descriptor", "Strides", "Swizzling modes".
template <int kRowBytes>
__device__ __forceinline__ std::uint64_t matrix_descriptor(std::uint32_t shared_address, std::uint32_t stride) {
  static_assert(kRowBytes == 128 || kRowBytes == 64);
  constexpr std::uint64_t kSwizzle = kRowBytes == 128 ? 1 : 2;
  constexpr std::uint64_t kLeadingOffset = 1;  // ignored: with these swizzles one panel holds all columns of a wgmma
  return kSwizzle << 62 | static_cast<std::uint64_t>(stride >> 4) << 32 | kLeadingOffset << 16 |
         (shared_address & 0x3ffff) >> 4;
}

template <class Element>
struct WgmmaType;
template <>
struct WgmmaType<__nv_bfloat16> {
  static constexpr char kName[] = "bf16";
};
template <>
struct WgmmaType<__half> {
  static constexpr char kName[] = "f16";
};

// c = a b^T, or c += a b^T if kAdd: a [64, 16] and b [32 or 64, 16] in shared memory, c [64, 32 or 64]. A thread of
// warp w holds row 16 w + lane / 4 in c[0] and row 16 w + lane / 4 + 8 in c[1]. Of every eight columns it holds
// 2 (lane % 4) and 2 (lane % 4) + 1.
// "wgmma.mma_async", m64n32k16 and m64n64k16, both operands K-major.
template <class Element, bool kAdd>
__device__ __forceinline__ void wgmma_transposed(float (&c)[2][8], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.%18.%18 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
      "%16, %17, %19, 1, 1, 0, 0;"
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][2]),
        "+f"(c[1][3]), "+f"(c[0][4]), "+f"(c[0][5]), "+f"(c[1][4]), "+f"(c[1][5]), "+f"(c[0][6]), "+f"(c[0][7]),
        "+f"(c[1][6]), "+f"(c[1][7])
      : "l"(a), "l"(b), "C"(WgmmaType<Element>::kName), "n"(kAdd ? 1 : 0)
      : "memory");
}

template <class Element, bool kAdd>
__device__ __forceinline__ void wgmma_transposed(float (&c)[2][16], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.%34.%34 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
      "%32, %33, %35, 1, 1, 0, 0;"
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][2]),
        "+f"(c[1][3]), "+f"(c[0][4]), "+f"(c[0][5]), "+f"(c[1][4]), "+f"(c[1][5]), "+f"(c[0][6]), "+f"(c[0][7]),
        "+f"(c[1][6]), "+f"(c[1][7]), "+f"(c[0][8]), "+f"(c[0][9]), "+f"(c[1][8]), "+f"(c[1][9]), "+f"(c[0][10]),
        "+f"(c[0][11]), "+f"(c[1][10]), "+f"(c[1][11]), "+f"(c[0][12]), "+f"(c[0][13]), "+f"(c[1][12]), "+f"(c[1][13]),
        "+f"(c[0][14]), "+f"(c[0][15]), "+f"(c[1][14]), "+f"(c[1][15])
      : "l"(a), "l"(b), "C"(WgmmaType<Element>::kName), "n"(kAdd ? 1 : 0)
      : "memory");
}

// c += a b, with b [16, 32 or 64] in shared memory, MN-major, and a in registers, with the fragments of mma_m16n8k16.
// wgmma_n64 uses the 16 registers from c[.][kFirst] on of both rows: columns 4 kFirst to 4 kFirst + 63. The registers
// must not change until the wgmma has been waited for.
template <class Element>
__device__ __forceinline__ void wgmma_n32(float (&c)[2][8], const std::uint32_t (&a)[4], std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.%21.%21 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
      "{%16,%17,%18,%19}, %20, 1, 1, 1, 1;"
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][2]),
        "+f"(c[1][3]), "+f"(c[0][4]), "+f"(c[0][5]), "+f"(c[1][4]), "+f"(c[1][5]), "+f"(c[0][6]), "+f"(c[0][7]),
        "+f"(c[1][6]), "+f"(c[1][7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "C"(WgmmaType<Element>::kName)
      : "memory");
}

template <class Element, int kFirst, int kColumns>
__device__ __forceinline__ void wgmma_n64(float (&c)[2][kColumns], const std::uint32_t (&a)[4], std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.%37.%37 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
      "{%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
      : "+f"(c[0][kFirst + 0]), "+f"(c[0][kFirst + 1]), "+f"(c[1][kFirst + 0]), "+f"(c[1][kFirst + 1]),
        "+f"(c[0][kFirst + 2]), "+f"(c[0][kFirst + 3]), "+f"(c[1][kFirst + 2]), "+f"(c[1][kFirst + 3]),
        "+f"(c[0][kFirst + 4]), "+f"(c[0][kFirst + 5]), "+f"(c[1][kFirst + 4]), "+f"(c[1][kFirst + 5]),
        "+f"(c[0][kFirst + 6]), "+f"(c[0][kFirst + 7]), "+f"(c[1][kFirst + 6]), "+f"(c[1][kFirst + 7]),
        "+f"(c[0][kFirst + 8]), "+f"(c[0][kFirst + 9]), "+f"(c[1][kFirst + 8]), "+f"(c[1][kFirst + 9]),
        "+f"(c[0][kFirst + 10]), "+f"(c[0][kFirst + 11]), "+f"(c[1][kFirst + 10]), "+f"(c[1][kFirst + 11]),
        "+f"(c[0][kFirst + 12]), "+f"(c[0][kFirst + 13]), "+f"(c[1][kFirst + 12]), "+f"(c[1][kFirst + 13]),
        "+f"(c[0][kFirst + 14]), "+f"(c[0][kFirst + 15]), "+f"(c[1][kFirst + 14]), "+f"(c[1][kFirst + 15])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "C"(WgmmaType<Element>::kName)
      : "memory");
}

}  // namespace fovea::cuda::ptx

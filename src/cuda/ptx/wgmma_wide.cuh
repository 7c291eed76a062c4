// wgmma with 8 to 256 columns and flat accumulators. PTX ISA, "wgmma.mma_async". sm_90a only.
//
// An accumulator c[N / 2] of a product with N columns belongs to one thread. c[i] of lane l in warp w of the warpgroup
// is row 16 w + l / 4 + 8 (i / 2 % 2), column 8 (i / 4) + 2 (l % 4) + i % 2. So c[8k] to c[8k + 7], packed in pairs,
// are the four registers of an A operand [64, 16] with columns 16k to 16k + 15.
#pragma once

#include <cstdint>

#include "cuda/ptx/wgmma.cuh"

namespace fovea::cuda::ptx {

// Keeps the compiler from moving accesses to a wgmma's registers across a fence or a wait.
template <int kCount>
__device__ __forceinline__ void wgmma_fence_operand(float (&c)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(c[i])::"memory");
}
template <int kCount>
__device__ __forceinline__ void wgmma_fence_operand(std::uint32_t (&a)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(a[i])::"memory");
}

// Descriptors of operands in shared memory with the 128-byte swizzle, as TMA writes it: panels of 64 columns, each of
// them rows of 128 bytes. Panels start at multiples of 1,024 bytes. "Matrix descriptor", "Strides".
//
// K-major: the contraction runs along the columns of one panel. The next 16 columns are 2 further (32 bytes / 16).
__device__ __forceinline__ std::uint64_t k_major_descriptor(std::uint32_t panel) {
  return matrix_descriptor<128>(panel, 1024);
}
// MN-major: the contraction runs along the rows, and the product's columns run over panels `panel_bytes` apart. The next
// 16 rows are 128 further (2,048 bytes / 16).
__device__ __forceinline__ std::uint64_t mn_major_descriptor(std::uint32_t panel, std::uint32_t panel_bytes) {
  constexpr std::uint64_t kSwizzle128 = 1, kEightRows = 1024;
  return kSwizzle128 << 62 | kEightRows >> 4 << 32 | static_cast<std::uint64_t>(panel_bytes >> 4) << 16 |
         (panel & 0x3ffff) >> 4;
}

// Eight registers of a list, as text and as operands.
#define FOVEA_TEXT_0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define FOVEA_TEXT_1 "%8,%9,%10,%11,%12,%13,%14,%15"
#define FOVEA_TEXT_2 "%16,%17,%18,%19,%20,%21,%22,%23"
#define FOVEA_TEXT_3 "%24,%25,%26,%27,%28,%29,%30,%31"
#define FOVEA_TEXT_4 "%32,%33,%34,%35,%36,%37,%38,%39"
#define FOVEA_TEXT_5 "%40,%41,%42,%43,%44,%45,%46,%47"
#define FOVEA_TEXT_6 "%48,%49,%50,%51,%52,%53,%54,%55"
#define FOVEA_TEXT_7 "%56,%57,%58,%59,%60,%61,%62,%63"
#define FOVEA_TEXT_8 "%64,%65,%66,%67,%68,%69,%70,%71"
#define FOVEA_TEXT_9 "%72,%73,%74,%75,%76,%77,%78,%79"
#define FOVEA_TEXT_10 "%80,%81,%82,%83,%84,%85,%86,%87"
#define FOVEA_TEXT_11 "%88,%89,%90,%91,%92,%93,%94,%95"
#define FOVEA_TEXT_12 "%96,%97,%98,%99,%100,%101,%102,%103"
#define FOVEA_TEXT_13 "%104,%105,%106,%107,%108,%109,%110,%111"
#define FOVEA_TEXT_14 "%112,%113,%114,%115,%116,%117,%118,%119"
#define FOVEA_TEXT_15 "%120,%121,%122,%123,%124,%125,%126,%127"
#define FOVEA_EIGHT(c, i) \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), \
      "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])

// The first 8 (k + 1) registers.
#define FOVEA_TEXTS_0 FOVEA_TEXT_0
#define FOVEA_OPERANDS_0 FOVEA_EIGHT(c, 0)
#define FOVEA_TEXTS_1 FOVEA_TEXTS_0 "," FOVEA_TEXT_1
#define FOVEA_OPERANDS_1 FOVEA_OPERANDS_0, FOVEA_EIGHT(c, 8)
#define FOVEA_TEXTS_2 FOVEA_TEXTS_1 "," FOVEA_TEXT_2
#define FOVEA_OPERANDS_2 FOVEA_OPERANDS_1, FOVEA_EIGHT(c, 16)
#define FOVEA_TEXTS_3 FOVEA_TEXTS_2 "," FOVEA_TEXT_3
#define FOVEA_OPERANDS_3 FOVEA_OPERANDS_2, FOVEA_EIGHT(c, 24)
#define FOVEA_TEXTS_4 FOVEA_TEXTS_3 "," FOVEA_TEXT_4
#define FOVEA_OPERANDS_4 FOVEA_OPERANDS_3, FOVEA_EIGHT(c, 32)
#define FOVEA_TEXTS_5 FOVEA_TEXTS_4 "," FOVEA_TEXT_5
#define FOVEA_OPERANDS_5 FOVEA_OPERANDS_4, FOVEA_EIGHT(c, 40)
#define FOVEA_TEXTS_6 FOVEA_TEXTS_5 "," FOVEA_TEXT_6
#define FOVEA_OPERANDS_6 FOVEA_OPERANDS_5, FOVEA_EIGHT(c, 48)
#define FOVEA_TEXTS_7 FOVEA_TEXTS_6 "," FOVEA_TEXT_7
#define FOVEA_OPERANDS_7 FOVEA_OPERANDS_6, FOVEA_EIGHT(c, 56)
#define FOVEA_TEXTS_8 FOVEA_TEXTS_7 "," FOVEA_TEXT_8
#define FOVEA_OPERANDS_8 FOVEA_OPERANDS_7, FOVEA_EIGHT(c, 64)
#define FOVEA_TEXTS_9 FOVEA_TEXTS_8 "," FOVEA_TEXT_9
#define FOVEA_OPERANDS_9 FOVEA_OPERANDS_8, FOVEA_EIGHT(c, 72)
#define FOVEA_TEXTS_10 FOVEA_TEXTS_9 "," FOVEA_TEXT_10
#define FOVEA_OPERANDS_10 FOVEA_OPERANDS_9, FOVEA_EIGHT(c, 80)
#define FOVEA_TEXTS_11 FOVEA_TEXTS_10 "," FOVEA_TEXT_11
#define FOVEA_OPERANDS_11 FOVEA_OPERANDS_10, FOVEA_EIGHT(c, 88)
#define FOVEA_TEXTS_12 FOVEA_TEXTS_11 "," FOVEA_TEXT_12
#define FOVEA_OPERANDS_12 FOVEA_OPERANDS_11, FOVEA_EIGHT(c, 96)
#define FOVEA_TEXTS_13 FOVEA_TEXTS_12 "," FOVEA_TEXT_13
#define FOVEA_OPERANDS_13 FOVEA_OPERANDS_12, FOVEA_EIGHT(c, 104)
#define FOVEA_TEXTS_14 FOVEA_TEXTS_13 "," FOVEA_TEXT_14
#define FOVEA_OPERANDS_14 FOVEA_OPERANDS_13, FOVEA_EIGHT(c, 112)
#define FOVEA_TEXTS_15 FOVEA_TEXTS_14 "," FOVEA_TEXT_15
#define FOVEA_OPERANDS_15 FOVEA_OPERANDS_14, FOVEA_EIGHT(c, 120)

// c = a b, or c += a b if kAdd, with a [64, 16] and b [16, N] in shared memory. Both are K-major, unless bit 0 (for a) or
// bit 1 (for b) of kMajor says MN-major.
#define FOVEA_WGMMA_SS(kN, kLast, kA, kB, kType, kScale, kTa, kTb)                                                      \
  template <class Element, bool kAdd, int kMajor = 0>                                                                  \
  __device__ __forceinline__ void wgmma_ss(float (&c)[kN / 2], std::uint64_t a, std::uint64_t b) {                     \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #kN "k16.f32.%" #kType ".%" #kType " {" FOVEA_TEXTS_##kLast       \
                 "}, %" #kA ", %" #kB ", %" #kScale ", 1, 1, %" #kTa ", %" #kTb ";"                                    \
                 : FOVEA_OPERANDS_##kLast                                                                              \
                 : "l"(a), "l"(b), "C"(WgmmaType<Element>::kName), "n"(kAdd ? 1 : 0), "n"(kMajor & 1),                 \
                   "n"(kMajor >> 1)                                                                                    \
                 : "memory");                                                                                          \
  }
FOVEA_WGMMA_SS(64, 3, 32, 33, 34, 35, 36, 37)
FOVEA_WGMMA_SS(80, 4, 40, 41, 42, 43, 44, 45)
FOVEA_WGMMA_SS(96, 5, 48, 49, 50, 51, 52, 53)
FOVEA_WGMMA_SS(112, 6, 56, 57, 58, 59, 60, 61)
FOVEA_WGMMA_SS(128, 7, 64, 65, 66, 67, 68, 69)
FOVEA_WGMMA_SS(144, 8, 72, 73, 74, 75, 76, 77)
FOVEA_WGMMA_SS(160, 9, 80, 81, 82, 83, 84, 85)
FOVEA_WGMMA_SS(176, 10, 88, 89, 90, 91, 92, 93)
FOVEA_WGMMA_SS(192, 11, 96, 97, 98, 99, 100, 101)
FOVEA_WGMMA_SS(208, 12, 104, 105, 106, 107, 108, 109)
FOVEA_WGMMA_SS(224, 13, 112, 113, 114, 115, 116, 117)
FOVEA_WGMMA_SS(240, 14, 120, 121, 122, 123, 124, 125)
FOVEA_WGMMA_SS(256, 15, 128, 129, 130, 131, 132, 133)

// The same with a in registers: the four of mma_m16n8k16, which must not change until the wgmma has been waited for.
#define FOVEA_WGMMA_RS(kN, kLast, kA0, kA1, kA2, kA3, kB, kType, kScale, kTb)                                           \
  template <class Element, bool kAdd, bool kMnMajor>                                                                   \
  __device__ __forceinline__ void wgmma_rs(float (&c)[kN / 2], const std::uint32_t* a, std::uint64_t b) {              \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #kN "k16.f32.%" #kType ".%" #kType " {" FOVEA_TEXTS_##kLast       \
                 "}, {%" #kA0 ",%" #kA1 ",%" #kA2 ",%" #kA3 "}, %" #kB ", %" #kScale ", 1, 1, %" #kTb ";"               \
                 : FOVEA_OPERANDS_##kLast                                                                              \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "C"(WgmmaType<Element>::kName),                 \
                   "n"(kAdd ? 1 : 0), "n"(kMnMajor ? 1 : 0)                                                            \
                 : "memory");                                                                                          \
  }
FOVEA_WGMMA_RS(64, 3, 32, 33, 34, 35, 36, 37, 38, 39)
FOVEA_WGMMA_RS(80, 4, 40, 41, 42, 43, 44, 45, 46, 47)
FOVEA_WGMMA_RS(96, 5, 48, 49, 50, 51, 52, 53, 54, 55)
FOVEA_WGMMA_RS(112, 6, 56, 57, 58, 59, 60, 61, 62, 63)
FOVEA_WGMMA_RS(128, 7, 64, 65, 66, 67, 68, 69, 70, 71)
FOVEA_WGMMA_RS(144, 8, 72, 73, 74, 75, 76, 77, 78, 79)
FOVEA_WGMMA_RS(160, 9, 80, 81, 82, 83, 84, 85, 86, 87)
FOVEA_WGMMA_RS(176, 10, 88, 89, 90, 91, 92, 93, 94, 95)
FOVEA_WGMMA_RS(192, 11, 96, 97, 98, 99, 100, 101, 102, 103)
FOVEA_WGMMA_RS(208, 12, 104, 105, 106, 107, 108, 109, 110, 111)
FOVEA_WGMMA_RS(224, 13, 112, 113, 114, 115, 116, 117, 118, 119)
FOVEA_WGMMA_RS(240, 14, 120, 121, 122, 123, 124, 125, 126, 127)
FOVEA_WGMMA_RS(256, 15, 128, 129, 130, 131, 132, 133, 134, 135)

#undef FOVEA_WGMMA_SS
#undef FOVEA_WGMMA_RS

}  // namespace fovea::cuda::ptx

// Tiles in shared memory: `rows` x kDim elements in 16-byte chunks, placed so that neither row- nor column-wise reads
// meet bank conflicts, zero where the tensor has no row or no column.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/device/sequence.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace fovea::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

template <class Element_, int kDim>
struct TileLayout {
  using Element = Element_;
  static constexpr int kPerChunk = 16 / static_cast<int>(sizeof(Element));
  static constexpr int kChunks = kDim / kPerChunk;
  static constexpr bool kPadded = sizeof(Element) == 4;  // fp32 rows are read by vector loads: padding is enough
  static constexpr int kPitch = kDim * static_cast<int>(sizeof(Element)) + (kPadded ? 16 : 0);
  static_assert(kChunks % 4 == 0);

  static constexpr int kSwizzled = kChunks % 8 == 0 ? 8 : 4;  // chunks that change places

  // Byte offset of a chunk. 16-bit tiles are read by ldmatrix, eight rows at the same column: an exclusive or with the
  // row spreads the eight over all banks.
  static __device__ __forceinline__ int offset(int row, int chunk) {
    if constexpr (kPadded) return row * kPitch + chunk * 16;
    const int turn = kSwizzled == 8 ? row & 7 : (row >> 1) & 3;
    return row * kPitch + ((chunk ^ turn) << 4);
  }

  // Offset of a chunk `rows` below (row, chunk); cheaper where the eight places of a chunk come round.
  static __device__ __forceinline__ int below(int row, int rows, int chunk) {
    return rows % 8 == 0 ? offset(row, chunk) + rows * kPitch : offset(row + rows, chunk);
  }

  // Address of the chunk `chunks` (even) further on in the row, given the address of one of the row's first two.
  static __device__ __forceinline__ std::uint32_t advance(std::uint32_t address, int chunks) {
    return (address ^ (chunks % kSwizzled << 4)) + chunks / kSwizzled * kSwizzled * 16;
  }
};

// Calls `load(std::true_type{})` where all rows can be copied in whole chunks, `load(std::false_type{})` elsewhere:
// tiles that are loaded together work out their addresses side by side.
template <class Load>
__device__ __forceinline__ void load_by(bool chunks, Load load) {
  if (chunks) [[likely]] {
    load(std::true_type{});
  } else {
    load(std::false_type{});
  }
}

// Copies rows first_row.. of `source` into a tile of kRows rows, by all kThreads threads: asynchronously in whole
// chunks, the caller commits and waits; or element by element.
template <class Layout, int kThreads, int kRows>
__device__ __forceinline__ void load_tile(auto chunks, std::byte* tile, const Rows<typename Layout::Element>& source,
                                          int first_row) {
  using Element = typename Layout::Element;
  constexpr int kStep = kThreads / Layout::kChunks;  // rows copied at a time
  static_assert(kThreads % Layout::kChunks == 0);
  const int thread = static_cast<int>(ptx::thread_index());  // read anew: addresses are not kept from copy to copy
  const int chunk = thread % Layout::kChunks, row = thread / Layout::kChunks;
  const int column = chunk * Layout::kPerChunk;
  const Element* from = source.data + (first_row + row) * source.stride + column;
  const int valid = column < source.dim ? source.len - first_row - row : 0;
  if constexpr (chunks.value) {
    const std::uint32_t base = shared_address(tile);
#pragma unroll
    for (int i = 0; i < kRows; i += kStep, from += kStep * source.stride) {
      if (kRows % kStep != 0 && row + i >= kRows) break;
      ptx::cp_async_16(base + Layout::below(row, i, chunk), from, i < valid ? 16 : 0);
    }
  } else {
    const int columns = min(source.dim - column, Layout::kPerChunk);
#pragma unroll 1
    for (int i = 0; row + i < kRows; i += kStep, from += kStep * source.stride) {
      auto* to = reinterpret_cast<Element*>(tile + Layout::offset(row + i, chunk));
#pragma unroll 1
      for (int n = 0; n < Layout::kPerChunk; ++n) to[n] = i < valid && n < columns ? from[n] : Element(0.0f);
    }
  }
}

// Flips the sign of every element of a tile of `bytes` bytes.
template <class Element>
__device__ __forceinline__ void negate_tile(std::byte* tile, int bytes) {
  constexpr std::uint32_t kSigns = sizeof(Element) == 4 ? 0x80000000u : 0x80008000u;
  auto* words = reinterpret_cast<std::uint32_t*>(tile);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < bytes / 4; i += static_cast<int>(blockDim.x)) words[i] ^= kSigns;
}

}  // namespace fovea::cuda

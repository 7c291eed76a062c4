// Tiles in shared memory: `rows` x kDim elements in 16-byte chunks, placed so that neither row- nor column-wise reads
// meet bank conflicts, zero where the tensor has no row or no column.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/sequence.cuh"
#include "cuda/ptx/cp_async.cuh"

namespace fovea::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

template <class Element, int kDim>
struct TileLayout {
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

  // Address of the chunk `chunks` (even) further on in the row, given the address of one of the row's first two.
  static __device__ __forceinline__ std::uint32_t advance(std::uint32_t address, int chunks) {
    return (address ^ (chunks % kSwizzled << 4)) + chunks / kSwizzled * kSwizzled * 16;
  }
};

// Copies rows first_row.. of `source` into a tile of kRows rows. Asynchronous if the rows are aligned: the caller
// commits and waits. Otherwise element by element.
template <int kRows, int kDim, class Element>
__device__ __forceinline__ void load_tile(std::byte* tile, const Rows<Element>& source, int first_row) {
  using Layout = TileLayout<Element, kDim>;
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const int chunk = thread % Layout::kChunks, step = threads / Layout::kChunks;
  if (thread >= step * Layout::kChunks) return;
  const int column = chunk * Layout::kPerChunk;
  const int columns = min(max(source.dim - column, 0), Layout::kPerChunk);
  const Element* from = source.data + (first_row + thread / Layout::kChunks) * source.stride + column;
  if (source.vector) {
    const std::uint32_t base = shared_address(tile);
#pragma unroll 2
    for (int row = thread / Layout::kChunks; row < kRows; row += step, from += step * source.stride) {
      const int bytes = first_row + row < source.len ? columns * static_cast<int>(sizeof(Element)) : 0;
      ptx::cp_async_16(base + Layout::offset(row, chunk), bytes > 0 ? from : source.data, bytes);
    }
  } else {
#pragma unroll 1
    for (int row = thread / Layout::kChunks; row < kRows; row += step, from += step * source.stride) {
      auto* to = reinterpret_cast<Element*>(tile + Layout::offset(row, chunk));
      const int valid = first_row + row < source.len ? columns : 0;
#pragma unroll 1
      for (int i = 0; i < Layout::kPerChunk; ++i) to[i] = i < valid ? from[i] : Element(0.0f);
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

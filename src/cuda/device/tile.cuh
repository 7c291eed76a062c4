// Tiles in shared memory: rows x kDim elements in 16-byte chunks, swizzled or padded so that reads along rows and along
// columns have no bank conflicts. Rows and columns that the tensor lacks are zero.
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
  static constexpr bool kPadded =
      sizeof(Element) == 4;  // fp32 rows are read by vector loads, for which padding suffices
  static constexpr int kPitch = kDim * static_cast<int>(sizeof(Element)) + (kPadded ? 16 : 0);
  static_assert(kChunks % 4 == 0);

  static constexpr int kSwizzled = kChunks % 8 == 0 ? 8 : 4;  // neighbouring chunks that the swizzle permutes
  static constexpr int kPanel = 8 * kSwizzled * 16;           // bytes of eight rows of kSwizzled chunks

  // Byte offset of a chunk. ldmatrix reads the same column of eight rows at a time; the XOR with the row spreads the
  // eight chunks over all banks. This is wgmma's 128-byte swizzle, or its 64-byte swizzle if a row has four chunks: a
  // panel holds eight rows of 128 or of 64 bytes.
  static __device__ __forceinline__ int offset(int row, int chunk) {
    if constexpr (kPadded) return row * kPitch + chunk * 16;
    const int permuted = kSwizzled == 8 ? row & 7 : (row >> 1) & 3;
    return row / 8 * 8 * kPitch + chunk / kSwizzled * kPanel + row % 8 * kSwizzled * 16 +
           ((chunk % kSwizzled ^ permuted) << 4);
  }

  // The address that is `chunks` chunks further along the row. `chunks` is even and `address` is chunk 0 or 1 of the
  // row, so chunk numbers add without carry and the XOR of the swizzle commutes with the addition. The XOR is of the
  // address itself, so the tile must start at a multiple of 128 bytes.
  static __device__ __forceinline__ std::uint32_t advance(std::uint32_t address, int chunks) {
    return (address ^ (chunks % kSwizzled << 4)) + chunks / kSwizzled * kPanel;
  }
};

// Calls load(std::true_type{}) if all rows can be copied in whole chunks, else load(std::false_type{}). One call for
// several tiles lets the compiler overlap their address arithmetic.
template <class Load>
__device__ __forceinline__ void dispatch_chunked(bool whole_chunks, Load load) {
  if (whole_chunks) [[likely]] {
    load(std::true_type{});
  } else {
    load(std::false_type{});
  }
}

// The copies of one thread, when kThreads threads copy a tile of kRows rows: one chunk of every kStep-th row.
template <class Layout, int kThreads, int kRows>
struct TileCopy {
  using Element = typename Layout::Element;
  static constexpr int kStep = kThreads / Layout::kChunks;
  static_assert(kThreads % Layout::kChunks == 0);
  const Element* from;
  int row, chunk, offset;
  int valid;  // rows of the tensor from `from` on; less than 1: none

  TileCopy() = default;
  // By default the thread index is read again from its special register, which saves a register.
  __device__ __forceinline__ TileCopy(const Rows<Element>& source, int first_row,
                                      unsigned thread = ptx::thread_index()) {
    __builtin_assume(thread < kThreads);
    chunk = thread % Layout::kChunks, row = thread / Layout::kChunks, offset = Layout::offset(row, chunk);
    const int column = chunk * Layout::kPerChunk;
    from = source.data + (first_row + row) * source.stride + column;
    valid = column < source.dim ? source.len - first_row - row : 0;
  }

  // cp.async of whole chunks, zero-filled where the tensor has no row. The caller commits and waits.
  __device__ __forceinline__ void copy(std::byte* tile, std::int64_t stride) const {
    const std::uint32_t base = shared_address(tile);
    const Element* at = from;
#pragma unroll
    for (int i = 0; i < kRows; i += kStep, at += kStep * stride) {
      if (kRows % kStep != 0 && row + i >= kRows) break;
      // The permutation repeats every eight rows.
      const int to = i % 8 == 0 ? offset + i * Layout::kPitch : Layout::offset(row + i, chunk);
      ptx::cp_async_16(base + to, at, i < valid ? 16 : 0);
    }
  }
  // Moves on to the next tile.
  __device__ __forceinline__ void advance(std::int64_t stride) { from += kRows * stride, valid -= kRows; }
};

// kThreads threads copy kRows rows of `source`, from `first_row` on, into a tile. `whole_chunks` comes from
// dispatch_chunked: true_type copies by cp.async, which the caller commits and waits for; false_type by elements.
template <class Layout, int kThreads, int kRows>
__device__ __forceinline__ void load_tile(auto whole_chunks, std::byte* tile,
                                          const Rows<typename Layout::Element>& source, int first_row) {
  using Element = typename Layout::Element;
  using Copy = TileCopy<Layout, kThreads, kRows>;
  const Copy copy(source, first_row);
  if constexpr (whole_chunks.value) {
    copy.copy(tile, source.stride);
  } else {
    const int columns = min(source.dim - copy.chunk * Layout::kPerChunk, Layout::kPerChunk);
    const Element* from = copy.from;
#pragma unroll 1
    for (int i = 0; copy.row + i < kRows; i += Copy::kStep, from += Copy::kStep * source.stride) {
      auto* to = reinterpret_cast<Element*>(tile + Layout::offset(copy.row + i, copy.chunk));
#pragma unroll 1
      for (int n = 0; n < Layout::kPerChunk; ++n) to[n] = i < copy.valid && n < columns ? from[n] : Element(0.0f);
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

// The same once this thread block's cp.async copies into the tile have arrived. A barrier must follow before the tile
// is read.
template <class Element>
__device__ __forceinline__ void negate_loaded_tile(std::byte* tile, int bytes) {
  ptx::cp_async_wait<0>();
  __syncthreads();
  negate_tile<Element>(tile, bytes);
}

}  // namespace fovea::cuda

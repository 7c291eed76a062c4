// MMA policy for bf16 and fp16 with wgmma: a warpgroup multiplies 64 rows at a time and reads the streamed operand from
// shared memory. Fragments and tile layout are those of mma.sync, to which code without wgmma falls back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/mma_sync_policy.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace fovea::cuda {

template <class Element_, class Tile>
struct WgmmaPolicy : MmaSyncPolicy<Element_, Tile> {
  using Base = MmaSyncPolicy<Element_, Tile>;
  using typename Base::Layout, typename Base::Scores, typename Base::Accumulator, typename Base::PStaging;
  using Element = Element_;
  static constexpr TileShape kTile = Tile::kShape;
  static_assert(kTile.warps == 4 && kTile.row_tiles == 1 && kTile.split_warps == 1 && kTile.dim <= kMaxChain);
  static_assert(kTile.stream == 32 || kTile.stream == 64);
  static_assert(kTile.stream * Base::Layout::kPitch % ptx::kMatrixAlignment == 0);
  static constexpr int kPanelColumns = Layout::kSwizzled * Layout::kPerChunk;

  // Call between this thread's copies and the barrier after which wgmma reads them.
  static __device__ __forceinline__ void fence_shared_copies() { ptx::fence_proxy_async(); }

  // Whether an MMA runs asynchronously until wait().
  static constexpr bool kAsyncMma = ptx::kHasWgmma;

  // Issues scores = a b^T as a wgmma group of its own.
  static __device__ __forceinline__ void issue_transposed(Scores& scores, const std::byte* a, const std::byte* b) {
    const std::uint64_t da = descriptor(a), db = descriptor(b);
    ptx::wgmma_fence_operand(scores);
    ptx::wgmma_fence();
    ptx::wgmma_transposed<Element, false>(scores, da, db);
#pragma unroll
    for (int k = 1; k < kTile.dim / 16; ++k)
      ptx::wgmma_transposed<Element, true>(scores, da + along_row(16 * k), db + along_row(16 * k));
    ptx::wgmma_commit();
  }

  // Issues acc += p b, with p rounded to Element, as a wgmma group of its own.
  static __device__ __forceinline__ void issue(Accumulator& acc, const Scores& p, const std::byte* b) {
    std::uint32_t ra[kTile.stream / 16][4];
#pragma unroll
    for (int k = 0; k < kTile.stream / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int j = 4 * k + i / 2 * 2;
        ra[k][i] = ptx::pack<Element>(p[i % 2][j], p[i % 2][j + 1]);
      }
    }
    const std::uint64_t db = descriptor(b);
    ptx::wgmma_fence_operand(acc);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kTile.stream / 16; ++k) {
      const std::uint64_t rows = db + (16 * k * Layout::kPitch >> 4);
      if constexpr (kTile.dim == 32) {
        ptx::wgmma_n32<Element>(acc, ra[k], rows);
      } else {
        ptx::wgmma_n64<Element, 0>(acc, ra[k], rows);
        if constexpr (kTile.dim == 128) ptx::wgmma_n64<Element, 16>(acc, ra[k], rows + along_row(64));
      }
    }
    ptx::wgmma_commit();
  }

  // Waits until at most kPending of the newest groups are in flight. `values`: registers that a finished group wrote.
  template <int kPending, int kColumns>
  static __device__ __forceinline__ void wait(float (&values)[2][kColumns]) {
    ptx::wgmma_wait<kPending>();
    ptx::wgmma_fence_operand(values);
  }

  // scores = a b^T; `overlapped` runs while the MMA does.
  static __device__ __forceinline__ void multiply_transposed(Scores& scores, const std::byte* a, const std::byte* b,
                                                             auto overlapped) {
    if constexpr (kAsyncMma) {
      issue_transposed(scores, a, b);
      overlapped();
      wait<0>(scores);
    } else {
      overlapped();
      Base::multiply_transposed(scores, a, b);
    }
  }
  static __device__ __forceinline__ void multiply_transposed(Scores& scores, const std::byte* a, const std::byte* b) {
    multiply_transposed(scores, a, b, [] {});
  }

  // acc += p b.
  static __device__ __forceinline__ void multiply(Accumulator& acc, const Scores& p, const std::byte* b,
                                                  PStaging& staging) {
    if constexpr (kAsyncMma) {
      issue(acc, p, b);
      wait<0>(acc);
    } else {
      Base::multiply(acc, p, b, staging);
    }
  }

 private:
  static __device__ __forceinline__ std::uint64_t descriptor(const std::byte* tile) {
    return ptx::matrix_descriptor<Layout::kPanel / 8>(shared_address(tile), 8 * Layout::kPitch);
  }
  // Descriptor offset of `column` from column 0.
  static constexpr std::uint64_t along_row(int column) {
    return (column / kPanelColumns * Layout::kPanel + column % kPanelColumns * sizeof(Element)) >> 4;
  }
};

}  // namespace fovea::cuda

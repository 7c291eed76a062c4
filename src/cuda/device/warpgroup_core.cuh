// TensorCore whose products four warps make together, 64 rows at a time, where the machine code has wgmma: what passes
// by is read where it lies in shared memory. Same fragments, same layout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/tensor_core.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace fovea::cuda {

template <class Element_, class Tile>
struct WarpgroupCore : TensorCore<Element_, Tile> {
  using Base = TensorCore<Element_, Tile>;
  using typename Base::Layout, typename Base::Scores, typename Base::Results, typename Base::Stage;
  using Element = Element_;
  static constexpr TileShape kTile = Tile::kShape;
  static_assert(kTile.warps == 4 && kTile.row_tiles == 1 && kTile.sharing == 1 && kTile.dim <= Base::kChain);
  static_assert(kTile.stream == 32 || kTile.stream == 64);
  static constexpr int kPanelColumns = Layout::kSwizzled * Layout::kPerChunk;

  // Between this thread's copies and the barrier behind which the products read them.
  static __device__ __forceinline__ void publish_copies() { ptx::fence_for_wgmma(); }

  // Whether products run beside what follows them until they are waited for.
  static constexpr bool kAsynchronous = ptx::kHasWgmma;

  // Begins scores = a b^T, a group of its own.
  static __device__ __forceinline__ void begin_transposed(Scores& scores, const std::byte* a, const std::byte* b) {
    const std::uint64_t da = descriptor(a), db = descriptor(b);
    ptx::pin(scores);
    ptx::wgmma_fence();
    ptx::wgmma_transposed<Element, false>(scores, da, db);
#pragma unroll
    for (int k = 1; k < kTile.dim / 16; ++k)
      ptx::wgmma_transposed<Element, true>(scores, da + along_row(16 * k), db + along_row(16 * k));
    ptx::wgmma_commit();
  }

  // Begins results += p (rounded to Element) b, a group of its own.
  static __device__ __forceinline__ void begin(Results& results, const Scores& p, const std::byte* b) {
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
    ptx::pin(results);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kTile.stream / 16; ++k) {
      const std::uint64_t rows = db + (16 * k * Layout::kPitch >> 4);
      if constexpr (kTile.dim == 32) {
        ptx::wgmma_n32<Element>(results, ra[k], rows);
      } else {
        ptx::wgmma_n64<Element, 0>(results, ra[k], rows);
        if constexpr (kTile.dim == 128) ptx::wgmma_n64<Element, 16>(results, ra[k], rows + along_row(64));
      }
    }
    ptx::wgmma_commit();
  }

  // Waits for all groups but the last kLater; `values` are of one of those waited for.
  template <int kLater, int kColumns>
  static __device__ __forceinline__ void wait(float (&values)[2][kColumns]) {
    ptx::wgmma_wait<kLater>();
    ptx::pin(values);
  }

  // As TensorCore, but `meanwhile` is done while the product is made.
  static __device__ __forceinline__ void multiply_transposed(Scores& scores, const std::byte* a, const std::byte* b,
                                                             auto meanwhile) {
    if constexpr (kAsynchronous) {
      begin_transposed(scores, a, b);
      meanwhile();
      wait<0>(scores);
    } else {
      meanwhile();
      Base::multiply_transposed(scores, a, b);
    }
  }
  static __device__ __forceinline__ void multiply_transposed(Scores& scores, const std::byte* a, const std::byte* b) {
    multiply_transposed(scores, a, b, [] {});
  }

  // As TensorCore.
  static __device__ __forceinline__ void multiply(Results& results, const Scores& p, const std::byte* b, Stage& stage) {
    if constexpr (kAsynchronous) {
      begin(results, p, b);
      wait<0>(results);
    } else {
      Base::multiply(results, p, b, stage);
    }
  }

 private:
  static __device__ __forceinline__ std::uint64_t descriptor(const std::byte* tile) {
    return ptx::matrix_descriptor<Layout::kPanel / 8>(shared_address(tile), 8 * Layout::kPitch);
  }
  // What a descriptor grows by from column 0 to `column`.
  static constexpr std::uint64_t along_row(int column) {
    return (column / kPanelColumns * Layout::kPanel + column % kPanelColumns * sizeof(Element)) >> 4;
  }
};

}  // namespace fovea::cuda

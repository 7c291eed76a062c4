// What both kernels of the two-pass backward share: their tiles, the order of thread blocks, and products of tiles.
#pragma once

#include "cuda/attention/sm90/accumulator.cuh"
#include "cuda/attention/sm90/backward_scores.cuh"
#include "cuda/attention/sm90/shared.cuh"
#include "cuda/attention/sm90/two_pass_parameters.h"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma_wide.cuh"

namespace fovea::cuda::sm90 {

// The compile-time choices of an instance. Dimensions are multiples of 64.
template <class Element_, int kDimQk_, int kDimV_>
struct TwoPassTile {
  using Element = Element_;
  static constexpr int kDimQk = kDimQk_, kDimV = kDimV_;
  static constexpr int kQkBytes = kTwoPassRows * kDimQk * 2, kVBytes = kTwoPassRows * kDimV * 2;
};
constexpr int kTwoPassPanelBytes = kTwoPassRows * 128;

// The tile of a sequence that this thread block works on.
struct SequenceTile {
  int tile, sequence;
};
__device__ __forceinline__ SequenceTile sequence_tile(const TilesOfSequences& order) {
  const int block = static_cast<int>(blockIdx.x), whole = order.section * order.tiles, section = block / whole,
            sequences = min(order.section, order.sequences - section * order.section);
  const int within = block - section * whole;
  return {within / sequences, section * order.section + within % sequences};
}

// One thread loads the rows of one tile, panel by panel.
template <int kDim>
__device__ __forceinline__ void load_tile_panels(std::byte* to, const CUtensorMap& map, std::uint32_t barrier, int row,
                                                 int head, int batch) {
#pragma unroll
  for (int panel = 0; panel < kDim / kPanelColumns; ++panel)
    ptx::tma_load_4d(shared_address(to + panel * kTwoPassPanelBytes), &map, barrier, panel * kPanelColumns, row, head,
                     batch);
}

// c = a b^T of the 64 rows of a and of b, which have kDim columns. Descriptors count in 16 bytes.
template <class Element, int kDim>
__device__ __forceinline__ void issue_rows_product(float (&c)[kTwoPassRows / 2], const std::byte* a,
                                                   const std::byte* b) {
  const std::uint64_t a_rows = ptx::k_major_descriptor(shared_address(a)),
                      b_rows = ptx::k_major_descriptor(shared_address(b));
#pragma unroll
  for (int i = 0; i < kDim / 16; ++i) {
    const int step = i / 4 * (kTwoPassPanelBytes / 16) + i % 4 * 2;
    if (i == 0) {
      ptx::wgmma_ss<Element, false>(c, a_rows + step, b_rows + step);
    } else {
      ptx::wgmma_ss<Element, true>(c, a_rows + step, b_rows + step);
    }
  }
}

// c += a b with a [64, 64] in registers, and the 64 rows of b along the contraction.
template <class Element, int kCount>
__device__ __forceinline__ void issue_gradient_product(float (&c)[kCount], const std::uint32_t (&a)[kTwoPassRows / 4],
                                                       const std::byte* b) {
  const std::uint64_t rows = ptx::mn_major_descriptor(shared_address(b), kTwoPassPanelBytes);
#pragma unroll
  for (int i = 0; i < kTwoPassRows / 16; ++i) ptx::wgmma_rs<Element, true, true>(c, a + 4 * i, rows + i * 128);
}

}  // namespace fovea::cuda::sm90

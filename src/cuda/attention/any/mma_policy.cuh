// The MMA policy of an element type and a tile (wgmma or mma.sync for bf16 and fp16, FMA for fp32), and what all
// policies share: masking and storing fragments.
#pragma once

#include <type_traits>

#include "cuda/device/fma_policy.cuh"
#include "cuda/device/mask.cuh"
#include "cuda/device/mma_sync_policy.cuh"
#include "cuda/device/store.cuh"
#include "cuda/device/wgmma_policy.cuh"

namespace fovea::cuda::any {

template <class Element, class Tile>
struct MmaPolicyFor {
  using Type = std::conditional_t<Tile::kShape.warpgroup, WgmmaPolicy<Element, Tile>, MmaSyncPolicy<Element, Tile>>;
};
template <class Tile>
struct MmaPolicyFor<float, Tile> {
  using Type = FmaPolicy<Tile>;
};
template <class Element, class Tile>
using MmaPolicy = typename MmaPolicyFor<Element, Tile>::Type;

// Thread blocks per SM that backward's registers allow. Without wgmma the streamed operand's fragments take registers
// too, so a tile made for wgmma then fits only twice.
template <class Tile>
constexpr int kCtasPerSm = Tile::kShape.warpgroup && !ptx::kHasWgmma ? 2 : Tile::kShape.ctas_per_sm;

__device__ __forceinline__ int warp_index() { return static_cast<int>(threadIdx.x) / 32; }

// scores = a b^T. `overlapped` runs during an asynchronous MMA, and before a synchronous one.
template <class Mma>
__device__ __forceinline__ void multiply_overlapped(typename Mma::Scores& scores, const std::byte* a,
                                                    const std::byte* b, auto overlapped) {
  if constexpr (Mma::kTile.warpgroup) {
    Mma::multiply_transposed(scores, a, b, overlapped);
  } else {
    overlapped();
    Mma::multiply_transposed(scores, a, b);
  }
}

template <int kRows, int kColumns>
__device__ __forceinline__ void fill(float (&values)[kRows][kColumns], float value) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) values[i][j] = value;
  }
}

// Writes `value` to the masked pairs; rows are queries.
template <class Mma>
__device__ __forceinline__ void apply_mask(typename Mma::Scores& scores, const Shape& s, int first_query, int first_key,
                                           float value) {
#pragma unroll
  for (int i = 0; i < Mma::kRows; ++i) {
    const Range visible = visible_keys(s, first_query + Mma::row(i));
#pragma unroll
    for (int j = 0; j < Mma::kScoreColumns; ++j) {
      const int key = first_key + Mma::score_column(j);
      if (key < visible.begin || key >= visible.end) scores[i][j] = value;
    }
  }
}

// One accumulator row times `factor`, to global memory.
template <class Mma>
__device__ __forceinline__ void store_row(const TensorRef& t, std::int64_t offset, int dim,
                                          const float (&row)[Mma::kColumns], float factor) {
#pragma unroll
  for (int j = 0; j < Mma::kColumns; j += Mma::kVector) {
    float values[Mma::kVector];
#pragma unroll
    for (int i = 0; i < Mma::kVector; ++i) values[i] = row[j + i] * factor;
    store<typename Mma::Element, Mma::kVector>(t, offset, Mma::column(j), dim, false, values);
  }
}

// Floats per accumulator row in shared memory, when a cluster or warps combine. With this padding, the float2
// stores of half a warp hit every bank once (fragments of mma.sync and wgmma).
template <class Mma>
constexpr int kCombinePitch = Mma::kTile.dim + 8;

// One accumulator row times `factor`, to shared memory.
template <class Mma>
__device__ __forceinline__ void put_row(float* to, const float (&row)[Mma::kColumns], float factor) {
#pragma unroll
  for (int j = 0; j < Mma::kColumns; j += 2)
    *reinterpret_cast<float2*>(to + Mma::column(j)) = {row[j] * factor, row[j + 1] * factor};
}

// One accumulator row times `factor`, to a dense row of partials.
template <class Mma>
__device__ __forceinline__ void store_partial_row(float* row, int dim, const float (&values)[Mma::kColumns],
                                                  float factor) {
  const TensorRef dense{row, 0, 0, 0, ElementKind::fp32, dim % 4 == 0};
  store_row<Mma>(dense, 0, dim, values, factor);
}

}  // namespace fovea::cuda::any

// The arithmetic that serves an element type: tensor cores for bf16 and fp16, fused multiply-adds for fp32.
#pragma once

#include <type_traits>

#include "cuda/device/fp32_core.cuh"
#include "cuda/device/mask.cuh"
#include "cuda/device/store.cuh"
#include "cuda/device/tensor_core.cuh"
#include "cuda/device/warpgroup_core.cuh"

namespace fovea::cuda::any {

template <class Element, class Tile>
struct CoreFor {
  using Type = std::conditional_t<Tile::kShape.warpgroup, WarpgroupCore<Element, Tile>, TensorCore<Element, Tile>>;
};
template <class Tile>
struct CoreFor<float, Tile> {
  using Type = Fp32Core<Tile>;
};
template <class Element, class Tile>
using CoreOf = typename CoreFor<Element, Tile>::Type;

// Blocks of threads per multiprocessor that the registers of backward leave room for: fragments of the passing side,
// too, are in registers where a tile that was made for wgmma does without.
template <class Tile>
constexpr int kResident = Tile::kShape.warpgroup && !ptx::kHasWgmma ? 2 : Tile::kShape.resident;

__device__ __forceinline__ int warp_index() { return static_cast<int>(threadIdx.x) / 32; }

// scores = a b^T; `meanwhile` is done beside it where products run beside other work, before it elsewhere.
template <class Core>
__device__ __forceinline__ void multiply_beside(typename Core::Scores& scores, const std::byte* a, const std::byte* b,
                                                auto meanwhile) {
  if constexpr (Core::kTile.warpgroup) {
    Core::multiply_transposed(scores, a, b, meanwhile);
  } else {
    meanwhile();
    Core::multiply_transposed(scores, a, b);
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

// `value` in the place of the pairs that the mask hides; rows are queries.
template <class Core>
__device__ __forceinline__ void fill_hidden(typename Core::Scores& scores, const Shape& s, int first_query,
                                            int first_key, float value) {
#pragma unroll
  for (int i = 0; i < Core::kRows; ++i) {
    const Range visible = visible_keys(s, first_query + Core::row(i));
#pragma unroll
    for (int j = 0; j < Core::kScoreColumns; ++j) {
      const int key = first_key + Core::score_column(j);
      if (key < visible.begin || key >= visible.end) scores[i][j] = value;
    }
  }
}

// One row of results, scaled.
template <class Core>
__device__ __forceinline__ void store_row(const TensorRef& t, std::int64_t offset, int dim,
                                          const float (&row)[Core::kColumns], float factor) {
#pragma unroll
  for (int j = 0; j < Core::kColumns; j += Core::kVector) {
    float values[Core::kVector];
#pragma unroll
    for (int i = 0; i < Core::kVector; ++i) values[i] = row[j + i] * factor;
    store<typename Core::Element, Core::kVector>(t, offset, Core::column(j), dim, false, values);
  }
}

// Floats of a row in shared memory where blocks of threads or warps join their results: stores of pairs, eight rows at
// once, meet no bank twice.
template <class Core>
constexpr int kJoinPitch = Core::kTile.dim + 8;

// One row of results to shared memory, scaled.
template <class Core>
__device__ __forceinline__ void put_row(float* to, const float (&row)[Core::kColumns], float factor) {
#pragma unroll
  for (int j = 0; j < Core::kColumns; j += 2)
    *reinterpret_cast<float2*>(to + Core::column(j)) = {row[j] * factor, row[j + 1] * factor};
}

template <class Core>
__device__ __forceinline__ void store_partial_row(float* row, int dim, const float (&values)[Core::kColumns],
                                                  float factor) {
  const TensorRef dense{row, 0, 0, 0, ElementKind::fp32, dim % 4 == 0};
  store_row<Core>(dense, 0, dim, values, factor);
}

}  // namespace fovea::cuda::any

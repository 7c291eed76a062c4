// The blocks of keys and values that pass by a tile of queries, copied into their stages of shared memory.
#pragma once

#include "cuda/any/core_of.cuh"
#include "cuda/device/tile.cuh"

namespace fovea::cuda::any {

// `Shared` has k and v, [stages] each.
template <class Element, class Tile, class Shared>
struct PassingBlocks {
  using Layout = typename CoreOf<Element, Tile>::Layout;
  static constexpr int kThreads = Tile::kShape.threads(), kRows = Tile::kShape.block();
  Shared& shared;
  Rows<Element> k, v;

  __device__ __forceinline__ bool vector() const { return k.vector && v.vector; }
  __device__ __forceinline__ void load(auto chunks, int block) const {
    const int stage = block % Tile::kShape.stages;
    load_tile<Layout, kThreads, kRows>(chunks, shared.k[stage], k, block * kRows);
    load_tile<Layout, kThreads, kRows>(chunks, shared.v[stage], v, block * kRows);
  }
  __device__ __forceinline__ void load_next(int block) const {
    load_by(vector(), [&](auto chunks) { load(chunks, block); });
    ptx::cp_async_commit();
  }
};

}  // namespace fovea::cuda::any

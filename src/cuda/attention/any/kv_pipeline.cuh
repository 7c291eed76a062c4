// The pipeline of K/V tiles: cp.async copies into stages of shared memory, one tile ahead of the MMAs.
#pragma once

#include <type_traits>

#include "cuda/attention/any/mma_policy.cuh"
#include "cuda/device/tile.cuh"

namespace fovea::cuda::any {

// `Shared::streamed` holds 2 x stages buffers: K and V of every stage. With a single stage, K and V are loaded one by
// one, each as soon as its buffer is free. Where K is read again after V (kSwapBuffers), the two swap buffers after
// every tile: the next K arrives where V was.
template <class Element, class Tile, class Shared>
struct KvPipeline {
  using Layout = typename MmaPolicy<Element, Tile>::Layout;
  static constexpr int kThreads = Tile::kShape.threads(), kRows = Tile::kShape.streamed_rows(),
                       kStages = Tile::kShape.stages;
  static constexpr bool kSingleStage = kStages == 1;
  // wgmma tiles have registers left to keep the addresses of the next copies.
  static constexpr bool kKeepsAddresses = Tile::kShape.warpgroup;
  struct NoAddress {
    NoAddress() = default;
    __device__ __forceinline__ NoAddress(const Rows<Element>&, int) {}
  };
  using Copy = std::conditional_t<kKeepsAddresses, TileCopy<Layout, kThreads, kRows>, NoAddress>;
  Shared& shared;
  Rows<Element> k, v;
  Copy next_k, next_v;

  // From K/V tile `begin` on. V is set later, by set_values, so that the first copies of Q and K start sooner.
  __device__ __forceinline__ KvPipeline(Shared& shared, const Rows<Element>& k, int begin)
      : shared(shared), k(k), next_k(k, begin * kRows) {}
  __device__ __forceinline__ void set_values(const Rows<Element>& values, int begin) {
    v = values, next_v = Copy(v, begin * kRows);
  }

  __device__ __forceinline__ bool whole_chunks() const { return k.whole_chunks && v.whole_chunks; }
  __device__ __forceinline__ std::byte* keys(int kv_tile) const { return shared.streamed[buffer(kv_tile)]; }
  __device__ __forceinline__ std::byte* values(int kv_tile) const { return shared.streamed[buffer(kv_tile) ^ 1]; }

  // Tiles must be loaded in order, from the first on.
  __device__ __forceinline__ void load_keys(auto whole_chunks, int kv_tile) {
    load_rows(whole_chunks, keys(kv_tile), k, next_k, kv_tile);
    if (kSingleStage) ptx::cp_async_commit();
  }
  __device__ __forceinline__ void load_values(auto whole_chunks, int kv_tile) {
    load_rows(whole_chunks, values(kv_tile), v, next_v, kv_tile);
    ptx::cp_async_commit();
  }
  __device__ __forceinline__ void load(auto whole_chunks, int kv_tile) {
    load_keys(whole_chunks, kv_tile);
    load_values(whole_chunks, kv_tile);
  }
  // Call these once all threads are done with the previous tile. With a single stage, load K and V one by one.
  __device__ __forceinline__ void load_next_tile(int kv_tile) {
    dispatch_chunked(whole_chunks(), [&](auto whole_chunks) { load(whole_chunks, kv_tile); });
  }
  __device__ __forceinline__ void load_next_keys(int kv_tile) {
    dispatch_chunked(whole_chunks(), [&](auto whole_chunks) { load_keys(whole_chunks, kv_tile); });
  }
  __device__ __forceinline__ void load_next_values(int kv_tile) {
    dispatch_chunked(whole_chunks(), [&](auto whole_chunks) { load_values(whole_chunks, kv_tile); });
  }
  // Issues the copies that may run while the scores of `kv_tile` are computed.
  __device__ __forceinline__ void load_during_scores(int kv_tile, bool first, bool last) {
    if (!kSingleStage && !last) load_next_tile(kv_tile + 1);
    if (kSingleStage && !first) load_next_values(kv_tile);
  }
  // Waits for this thread's copies that the first MMA of a tile needs. With a single stage, the first tile's V is
  // still in flight afterwards.
  static __device__ __forceinline__ void wait(bool first) {
    if (kSingleStage && first) {
      ptx::cp_async_wait<1>();
    } else {
      ptx::cp_async_wait<0>();
    }
  }
  // Single stage: loads the next K once all threads are done with this one. wgmma tiles load before the softmax, which
  // hides the copy; other tiles, whose warps drift apart, load after the barrier that follows the softmax.
  __device__ __forceinline__ void load_after_scores(int kv_tile, bool last) {
    if (!kSingleStage || !kKeepsAddresses || last) return;
    __syncthreads();
    load_next_keys(kv_tile + 1);
  }
  __device__ __forceinline__ void load_after_softmax(int kv_tile, bool last) {
    if (!kKeepsAddresses && !last) load_next_keys(kv_tile + 1);
  }
  // Single stage: waits for V. The copy of the next K may stay in flight.
  static __device__ __forceinline__ void wait_for_values(bool last) {
    if (kKeepsAddresses && !last) {
      ptx::cp_async_wait<1>();
    } else {
      ptx::cp_async_wait<0>();
    }
  }

 private:
  static __device__ __forceinline__ void load_rows(auto whole_chunks, std::byte* to, const Rows<Element>& from,
                                                   Copy& next, int kv_tile) {
    if constexpr (kKeepsAddresses && whole_chunks.value) {
      next.copy(to, from.stride);
    } else {
      load_tile<Layout, kThreads, kRows>(whole_chunks, to, from, kv_tile * kRows);
    }
    if constexpr (kKeepsAddresses) next.advance(from.stride);
  }
  static __device__ __forceinline__ int buffer(int kv_tile) {
    if (kSingleStage) return Shared::kSwapBuffers ? kv_tile % 2 : 0;
    return kv_tile % kStages * 2;
  }
};

}  // namespace fovea::cuda::any

// The blocks of keys and values that pass by a tile of queries, copied into their stages of shared memory.
#pragma once

#include <type_traits>

#include "cuda/attention/any/core_of.cuh"
#include "cuda/device/tile.cuh"

namespace fovea::cuda::any {

// `Shared` has passing, [2 stages]: keys and values of every stage. The halves of a single stage are loaded as they
// become free. Where keys are read again after the values (kExchange), both change places from block to block: the next
// keys arrive where the values were.
template <class Element, class Tile, class Shared>
struct PassingBlocks {
  using Layout = typename CoreOf<Element, Tile>::Layout;
  static constexpr int kThreads = Tile::kShape.threads(), kRows = Tile::kShape.block(), kStages = Tile::kShape.stages;
  static constexpr bool kSingle = kStages == 1;
  // Tiles that multiply with wgmma have registers left: where their next copies begin is kept.
  static constexpr bool kKept = Tile::kShape.warpgroup;
  struct NotKept {
    NotKept() = default;
    __device__ __forceinline__ NotKept(const Rows<Element>&, int) {}
  };
  using Copy = std::conditional_t<kKept, TileCopy<Layout, kThreads, kRows>, NotKept>;
  Shared& shared;
  Rows<Element> k, v;
  Copy next_k, next_v;

  // From block `begin` on; the values are told by `add_values`.
  __device__ __forceinline__ PassingBlocks(Shared& shared, const Rows<Element>& k, int begin)
      : shared(shared), k(k), next_k(k, begin * kRows) {}
  __device__ __forceinline__ void add_values(const Rows<Element>& values, int begin) {
    v = values, next_v = Copy(v, begin * kRows);
  }

  __device__ __forceinline__ bool vector() const { return k.vector && v.vector; }
  __device__ __forceinline__ std::byte* keys(int block) const { return shared.passing[place(block)]; }
  __device__ __forceinline__ std::byte* values(int block) const { return shared.passing[place(block) ^ 1]; }

  // Blocks are asked for one after the other, from the first on.
  __device__ __forceinline__ void load_keys(auto chunks, int block) {
    load_rows(chunks, keys(block), k, next_k, block);
    if (kSingle) ptx::cp_async_commit();
  }
  __device__ __forceinline__ void load_values(auto chunks, int block) {
    load_rows(chunks, values(block), v, next_v, block);
    ptx::cp_async_commit();
  }
  __device__ __forceinline__ void load(auto chunks, int block) {
    load_keys(chunks, block);
    load_values(chunks, block);
  }
  // When everyone is done with the block before; of a single stage, keys and values one by one.
  __device__ __forceinline__ void load_next(int block) {
    load_by(vector(), [&](auto chunks) { load(chunks, block); });
  }
  __device__ __forceinline__ void load_next_keys(int block) {
    load_by(vector(), [&](auto chunks) { load_keys(chunks, block); });
  }
  __device__ __forceinline__ void load_next_values(int block) {
    load_by(vector(), [&](auto chunks) { load_values(chunks, block); });
  }
  // What may be asked for when the scores of a block are made.
  __device__ __forceinline__ void load_beside_scores(int block, bool first, bool last) {
    if (!kSingle && !last) load_next(block + 1);
    if (kSingle && !first) load_next_values(block);
  }
  // Waits for this thread's share of what the first product of a block needs. The first block's values are still under
  // way then if there is a single stage.
  static __device__ __forceinline__ void wait(bool first) {
    if (kSingle && first) {
      ptx::cp_async_wait<1>();
    } else {
      ptx::cp_async_wait<0>();
    }
  }
  // Of a single stage: the next keys as soon as everyone is done with these, for tiles with wgmma at once, so that they
  // arrive while the softmax is made; for others, whose warps come one by one, behind the barrier that follows it.
  __device__ __forceinline__ void load_behind_scores(int block, bool last) {
    if (!kSingle || !kKept || last) return;
    __syncthreads();
    load_next_keys(block + 1);
  }
  __device__ __forceinline__ void load_behind_softmax(int block, bool last) {
    if (!kKept && !last) load_next_keys(block + 1);
  }
  // The values of a single stage, behind which the next keys may have been asked for.
  static __device__ __forceinline__ void wait_for_values(bool last) {
    if (kKept && !last) {
      ptx::cp_async_wait<1>();
    } else {
      ptx::cp_async_wait<0>();
    }
  }

 private:
  static __device__ __forceinline__ void load_rows(auto chunks, std::byte* to, const Rows<Element>& from, Copy& next,
                                                   int block) {
    if constexpr (kKept && chunks.value) {
      next.copy(to, from.stride);
    } else {
      load_tile<Layout, kThreads, kRows>(chunks, to, from, block * kRows);
    }
    if constexpr (kKept) next.next(from.stride);
  }
  static __device__ __forceinline__ int place(int block) {
    if (kSingle) return Shared::kExchange ? block % 2 : 0;
    return block % kStages * 2;
  }
};

}  // namespace fovea::cuda::any

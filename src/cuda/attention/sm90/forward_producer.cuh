// The producer: one thread that loads Q, K and V tiles by TMA, in the order in which the consumers need them.
#pragma once

#include "cuda/attention/sm90/shared.cuh"
#include "cuda/attention/sm90/work.cuh"
#include "cuda/ptx/tma.cuh"

namespace fovea::cuda::sm90 {

// Loads the rows of one K or V tile, panel by panel, into the stage at `to`.
template <int kRows, int kColumns>
__device__ __forceinline__ void load_panels(std::byte* to, const CUtensorMap& map, std::uint64_t& full, int row,
                                            int head, int batch, ptx::CachePolicy policy) {
  const std::uint32_t barrier = shared_address(&full), address = shared_address(to);
  ptx::mbarrier_arrive_expect(barrier, kRows * kColumns * 2);
#pragma unroll
  for (int panel = 0; panel < kColumns / kPanelColumns; ++panel)
    ptx::tma_load_4d(address + panel * kRows * 128, &map, barrier, panel * kPanelColumns, row, head, batch, policy);
}

template <class Tile>
struct ForwardProducer {
  static constexpr ForwardTile kTile = Tile::kTile;
  const ForwardParameters& p;
  ForwardShared<Tile>& shared;
  RingPosition<kTile.q_stages> q{};
  RingPosition<kTile.kv_stages> k{}, v{};
  RingPosition<ForwardShared<Tile>::kTileStages> tiles{};

  __device__ __forceinline__ ptx::CachePolicy policy() const {
    return p.kv_read_once ? ptx::CachePolicy::evict_first : ptx::CachePolicy::evict_normal;
  }

  // Gives the consumers the next query tile, once they have left the one that was in this stage.
  __device__ __forceinline__ void publish(const QueryTile& tile) {
    wait_empty(shared.tile_barriers, tiles);
    shared.tiles[tiles.stage()] = tile;
    ptx::mbarrier_arrive(shared_address(&shared.tile_barriers.full[tiles.stage()]));
    tiles.advance();
  }
  __device__ __forceinline__ void load_q(const QueryTile& tile, int head_kv) {
    wait_empty(shared.q_barriers, q);
    const std::uint32_t barrier = shared_address(&shared.q_barriers.full[q.stage()]);
    const std::uint32_t to = shared_address(shared.q[q.stage()]);
    // The whole box counts, also rows that TMA fills with zeros. Rows from queries x heads on keep old data; their
    // results are never stored.
    ptx::mbarrier_arrive_expect(barrier, p.packing.heads * p.packing.queries * kTile.dim_qk * 2);
#pragma unroll
    for (int panel = 0; panel < kTile.dim_qk / kPanelColumns; ++panel)
      ptx::tma_load_5d(to + panel * kTile.rows() * 128, &p.q, barrier, panel * kPanelColumns,
                       tile.head - head_kv * p.shape.group, tile.first_query, head_kv, tile.batch);
    q.advance();
  }
  __device__ __forceinline__ void load_k(const QueryTile& tile, int head_kv, int kv_tile) {
    wait_empty(shared.k_barriers, k);
    load_panels<kTile.keys, kTile.dim_qk>(shared.k[k.stage()], p.k, shared.k_barriers.full[k.stage()],
                                          kv_tile * kTile.keys, head_kv, tile.batch, policy());
    k.advance();
  }
  __device__ __forceinline__ void load_v(const QueryTile& tile, int head_kv, int kv_tile) {
    wait_empty(shared.v_barriers, v);
    load_panels<kTile.keys, kTile.dim_v>(shared.v[v.stage()], p.v, shared.v_barriers.full[v.stage()],
                                         kv_tile * kTile.keys, head_kv, tile.batch, policy());
    v.advance();
  }
  // Prefetches into the L2 cache: Q of this thread block's next tile, and every q_tiles-th K/V tile of its head. The
  // thread blocks with the head's other query tiles prefetch the rest.
  __device__ __forceinline__ void prefetch(int number) {
    if (number >= p.order.numbers) return;
    const QueryTile tile = query_tile<Tile>(p, number);
    const int head_kv = tile.head / p.shape.group;
    for (int column = 0; column < kTile.dim_qk; column += kPanelColumns)
      ptx::tma_prefetch_5d(&p.q, column, tile.head - head_kv * p.shape.group, tile.first_query, head_kv, tile.batch);
    int kv_tile = tile.kv_tiles.begin + tile.first_query / p.packing.queries;
    for (; kv_tile < tile.kv_tiles.end; kv_tile += p.order.q_tiles) {
      for (int column = 0; column < kTile.dim_qk; column += kPanelColumns)
        ptx::tma_prefetch_4d(&p.k, column, kv_tile * kTile.keys, head_kv, tile.batch);
      for (int column = 0; column < kTile.dim_v; column += kPanelColumns)
        ptx::tma_prefetch_4d(&p.v, column, kv_tile * kTile.keys, head_kv, tile.batch);
    }
  }
  // Loads Q and all K and V tiles of a query tile, except the V tile that is multiplied last.
  __device__ __forceinline__ void load_tile(const QueryTile& tile, int head_kv, int number) {
    load_q(tile, head_kv);
    load_k(tile, head_kv, tile.kv_tiles.end - 1);
    if (p.order.prefetches) prefetch(number + static_cast<int>(gridDim.x));
#pragma unroll 1
    for (int kv_tile = tile.kv_tiles.end - 1; kv_tile > tile.kv_tiles.begin; --kv_tile) {
      load_k(tile, head_kv, kv_tile - 1);  // consumers need K of the next tile before V of this one
      load_v(tile, head_kv, kv_tile);
    }
  }
  // Takes the next number before it loads the last V tile: the atomic's latency then overlaps the wait for a stage.
  __device__ __forceinline__ void run() {
    int number = static_cast<int>(blockIdx.x);
#pragma unroll 1
    while (number < p.order.numbers) {
      const QueryTile tile = query_tile<Tile>(p, number);
      const int head_kv = tile.head / p.shape.group;
      publish(tile);
      if (tile.has_keys()) load_tile(tile, head_kv, number);
      number = next_number(p.order, number);
      if (tile.has_keys()) load_v(tile, head_kv, tile.kv_tiles.begin);
    }
    publish({.batch = kNoTile});
  }
};

}  // namespace fovea::cuda::sm90

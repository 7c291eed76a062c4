// The producer: one thread that loads Q, K and V tiles by TMA, in the order in which the consumers need them.
#pragma once

#include "cuda/attention/sm90/shared.cuh"
#include "cuda/attention/sm90/work.cuh"
#include "cuda/ptx/tma.cuh"

namespace fovea::cuda::sm90 {

// Loads the rows of one tile, panel by panel, into the stage at `to`.
template <int kRows, int kColumns>
__device__ __forceinline__ void load_panels(std::byte* to, const CUtensorMap& map, std::uint64_t& full, int row,
                                            int head, int batch) {
  const std::uint32_t barrier = shared_address(&full), address = shared_address(to);
  ptx::mbarrier_arrive_expect(barrier, kRows * kColumns * 2);
#pragma unroll
  for (int panel = 0; panel < kColumns / kPanelColumns; ++panel)
    ptx::tma_load_4d(address + panel * kRows * 128, &map, barrier, panel * kPanelColumns, row, head, batch);
}

template <class Tile>
struct ForwardProducer {
  static constexpr ForwardTile kTile = Tile::kTile;
  const ForwardParameters& p;
  ForwardShared<Tile>& shared;
  RingPosition<kTile.q_stages> q{};
  RingPosition<kTile.kv_stages> k{}, v{};
  RingPosition<ForwardShared<Tile>::kNumberStages> numbers{};

  // Tells the consumers the number of the next tile.
  __device__ __forceinline__ void publish(int number) {
    wait_empty(shared.number_barriers, numbers);
    shared.numbers[numbers.stage()] = number;
    ptx::mbarrier_arrive(shared_address(&shared.number_barriers.full[numbers.stage()]));
    numbers.advance();
  }
  __device__ __forceinline__ void load_k(const QueryTile& tile, int head_kv, int kv_tile) {
    wait_empty(shared.k_barriers, k);
    load_panels<kTile.keys, kTile.dim_qk>(shared.k[k.stage()], p.k, shared.k_barriers.full[k.stage()],
                                          kv_tile * kTile.keys, head_kv, tile.batch);
    k.advance();
  }
  __device__ __forceinline__ void load_v(const QueryTile& tile, int head_kv, int kv_tile) {
    wait_empty(shared.v_barriers, v);
    load_panels<kTile.keys, kTile.dim_v>(shared.v[v.stage()], p.v, shared.v_barriers.full[v.stage()],
                                         kv_tile * kTile.keys, head_kv, tile.batch);
    v.advance();
  }
  __device__ __forceinline__ void load_tile(const QueryTile& tile) {
    const int head_kv = tile.head / p.shape.group;
    wait_empty(shared.q_barriers, q);
    load_panels<kTile.rows(), kTile.dim_qk>(shared.q[q.stage()], p.q, shared.q_barriers.full[q.stage()], tile.first_row,
                                            tile.head, tile.batch);
    q.advance();
    load_k(tile, head_kv, tile.kv_tiles.end - 1);
#pragma unroll 1
    for (int kv_tile = tile.kv_tiles.end - 1; kv_tile > tile.kv_tiles.begin; --kv_tile) {
      load_k(tile, head_kv, kv_tile - 1);  // consumers need K of the next tile before V of this one
      load_v(tile, head_kv, kv_tile);
    }
    load_v(tile, head_kv, tile.kv_tiles.begin);
  }
  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int round = 0;; ++round) {
      const int number = next_number(p.order, round);
      publish(number);
      if (number >= p.order.numbers) return;
      const QueryTile tile = query_tile<Tile>(p, number);
      if (tile.kv_tiles.begin < tile.kv_tiles.end) load_tile(tile);
    }
  }
};

}  // namespace fovea::cuda::sm90

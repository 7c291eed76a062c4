// A consumer warpgroup: 64 query rows of the thread block's tile. It multiplies Q by K from shared memory, keeps P in
// registers as the A operand of P V, and keeps O in registers to the end.
#pragma once

#include "cuda/attention/sm90/forward_epilogue.cuh"
#include "cuda/attention/sm90/shared.cuh"
#include "cuda/attention/sm90/softmax.cuh"
#include "cuda/ptx/warpgroup.cuh"
#include "cuda/ptx/wgmma_wide.cuh"

namespace fovea::cuda::sm90 {

template <class Element, class Tile>
struct ForwardConsumer {
  static constexpr ForwardTile kTile = Tile::kTile;
  static constexpr int kMmas = kTile.keys / 16;
  using Scores = float[kTile.keys / 2];
  using Probabilities = std::uint32_t[kTile.keys / 4];
  using Out = float[kTile.dim_v / 2];

  const ForwardParameters& p;
  ForwardShared<Tile>& shared;
  int warpgroup, thread;  // thread of the warpgroup
  RingPosition<kTile.q_stages> q{};
  RingPosition<kTile.kv_stages> k{}, v{};
  RingPosition<ForwardShared<Tile>::kNumberStages> numbers{};

  __device__ __forceinline__ bool first_lane() const { return thread % 32 == 0; }

  // The number of the next query tile.
  __device__ __forceinline__ int next_number() {
    wait_full(shared.number_barriers, numbers);
    const int number = *static_cast<volatile int*>(&shared.numbers[numbers.stage()]);
    __syncwarp();
    release(shared.number_barriers, numbers, first_lane());
    return number;
  }

  // Issues S = Q K^T as a wgmma group.
  __device__ __forceinline__ void issue_scores(Scores& scores) {
    constexpr int kQPanel = kTile.rows() * 128, kKPanel = kTile.keys * 128;
    const std::uint64_t dq =
        ptx::k_major_descriptor(shared_address(shared.q[q.stage()]) + warpgroup * kWarpgroupRows * 128);
    const std::uint64_t dk = ptx::k_major_descriptor(shared_address(shared.k[k.stage()]));
    ptx::wgmma_fence_operand(scores);
    ptx::wgmma_fence();
    ptx::wgmma_ss<Element, false>(scores, dq, dk);
#pragma unroll
    for (int i = 1; i < kTile.dim_qk / 16; ++i) {
      const int panel = i / 4, within = i % 4 * 32;
      ptx::wgmma_ss<Element, true>(scores, dq + (panel * kQPanel + within) / 16, dk + (panel * kKPanel + within) / 16);
    }
    ptx::wgmma_commit();
  }

  // Issues O += P V as a wgmma group.
  __device__ __forceinline__ void issue_out(Out& out, Probabilities& probabilities) {
    const std::uint64_t dv = ptx::mn_major_descriptor(shared_address(shared.v[v.stage()]), kTile.keys * 128);
    ptx::wgmma_fence_operand(out);
    ptx::wgmma_fence_operand(probabilities);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kMmas; ++i)
      ptx::wgmma_rs<Element, true, true>(out, probabilities + 4 * i, dv + i * 16 * 128 / 16);
    ptx::wgmma_commit();
  }

  template <int kPending, int kCount>
  __device__ __forceinline__ void wait_products(float (&values)[kCount]) {
    ptx::wgmma_wait<kPending>();
    ptx::wgmma_fence_operand(values);
  }

  // The warpgroups take turns in a circle: each waits for its own barrier, and later lets the next one go on. The last
  // one gives the first its first turn.
  __device__ __forceinline__ void take_turn() const {
    if constexpr (kTile.turns) ptx::named_barrier_sync(1 + warpgroup, 2 * kWarpgroup);
  }
  __device__ __forceinline__ void end_turn() const {
    if constexpr (kTile.turns)
      ptx::named_barrier_arrive(warpgroup + 1 == kTile.warpgroups ? 1 : 2 + warpgroup, 2 * kWarpgroup);
  }
  __device__ __forceinline__ void give_first_turn() const {
    if (warpgroup + 1 == kTile.warpgroups) end_turn();
  }

  __device__ __forceinline__ int query(const QueryTile& tile) const {
    return tile.first_row + warpgroup * kWarpgroupRows + thread / 32 * 16 + thread % 32 / 4;
  }

  __device__ __forceinline__ void mask(Scores& scores, const QueryTile& tile, int kv_tile) {
    apply_mask(scores, p.shape, query(tile), kv_tile * kTile.keys + 2 * (thread % 4));
  }
  // Written so that the compiler makes no memset of it, which would put the array into memory.
  static __device__ __forceinline__ void set_zero(Out& out) {
#pragma unroll
    for (int i = 0; i < kTile.dim_v / 2; ++i) asm volatile("mov.b32 %0, 0;" : "=f"(out[i]));
  }

  // Scores become exponentials.
  __device__ __forceinline__ void softmax(Scores& scores, Rows2& rows) {
    update_maximum(scores, rows, p.shape.scale_log2e);
    exponentiate(scores, rows, p.shape.scale_log2e);
  }

  // On entry P of the K/V tile before is in `probabilities`, and its V has not been used.
  template <bool kMasked>
  __device__ __forceinline__ void step(Scores& scores, Probabilities& probabilities, Out& out, Rows2& rows,
                                       const QueryTile& tile, int kv_tile) {
    wait_full(shared.k_barriers, k);
    take_turn();
    issue_scores(scores);
    wait_full(shared.v_barriers, v);
    issue_out(out, probabilities);
    end_turn();
    wait_products<1>(scores);
    release(shared.k_barriers, k, first_lane());
    if constexpr (kMasked) mask(scores, tile, kv_tile);
    softmax(scores, rows);
    wait_products<0>(out);
    release(shared.v_barriers, v, first_lane());
    pack_operand<Element>(probabilities, scores);
    rescale(out, rows);
  }

  // The exponentials of a query tile's first K/V tile, which is the last in memory: a mask or the end of the sequence
  // may cut it.
  __device__ __forceinline__ void first_softmax(Scores& scores, Rows2& rows, const QueryTile& tile) {
    const int kv_tile = tile.kv_tiles.end - 1;
    if (kv_tile < tile.unmasked.begin || kv_tile >= tile.unmasked.end) mask(scores, tile, kv_tile);
    rows = {};
    softmax(scores, rows);
  }

  __device__ __forceinline__ void start(Scores& scores, Probabilities& probabilities, Out& out, Rows2& rows,
                                        const QueryTile& tile) {
    wait_full(shared.q_barriers, q);
    wait_full(shared.k_barriers, k);
    issue_scores(scores);
    wait_products<0>(scores);
    release(shared.k_barriers, k, first_lane());
    first_softmax(scores, rows, tile);
    pack_operand<Element>(probabilities, scores);
    set_zero(out);
  }

  // All K/V tiles but the first. Only tiles at both ends are partly masked.
  __device__ __forceinline__ void later_steps(Scores& scores, Probabilities& probabilities, Out& out, Rows2& rows,
                                              const QueryTile& tile) {
    int kv_tile = tile.kv_tiles.end - 2;
#pragma unroll 1
    for (; kv_tile >= tile.kv_tiles.begin && kv_tile >= tile.unmasked.end; --kv_tile)
      step<true>(scores, probabilities, out, rows, tile, kv_tile);
#pragma unroll 1
    for (; kv_tile >= tile.kv_tiles.begin && kv_tile >= tile.unmasked.begin; --kv_tile)
      step<false>(scores, probabilities, out, rows, tile, kv_tile);
#pragma unroll 1
    for (; kv_tile >= tile.kv_tiles.begin; --kv_tile) step<true>(scores, probabilities, out, rows, tile, kv_tile);
    release(shared.q_barriers, q, first_lane());
  }

  __device__ __forceinline__ void finish(Probabilities& probabilities, Out& out, const Rows2& rows,
                                         const QueryTile& tile) {
    wait_full(shared.v_barriers, v);
    issue_out(out, probabilities);
    wait_products<0>(out);
    release(shared.v_barriers, v, first_lane());
    const RowScale scale = finish_rows<Element>(p, tile, query(tile), rows);
    write_rows<Element>(p, tile, query(tile), out, scale);
  }

  // The step from one query tile to the next: S of the next one beside the last O of this one. If registers are few,
  // results are stored before the softmax.
  __device__ __forceinline__ void change_tile(Scores& scores, Probabilities& probabilities, Out& out, Rows2& rows,
                                              int number, int next) {
    constexpr bool kStoreFirst = kTile.dim_v > 192;
    const QueryTile before = tile_again(number);
    const RowScale scale = finish_rows<Element>(p, before, query(before), rows);
    wait_full(shared.q_barriers, q);
    wait_full(shared.k_barriers, k);
    take_turn();
    issue_scores(scores);
    wait_full(shared.v_barriers, v);
    issue_out(out, probabilities);
    end_turn();
    if constexpr (!kStoreFirst) {
      wait_products<1>(scores);
      release(shared.k_barriers, k, first_lane());
      first_softmax(scores, rows, tile_again(next));
    }
    wait_products<0>(out);
    release(shared.v_barriers, v, first_lane());
    if constexpr (!kStoreFirst) pack_operand<Element>(probabilities, scores);
    const QueryTile tile = tile_again(number);
    write_rows<Element>(p, tile, query(tile), out, scale);
    if constexpr (kStoreFirst) {
      ptx::wgmma_fence_operand(scores);
      release(shared.k_barriers, k, first_lane());
      first_softmax(scores, rows, tile_again(next));
      pack_operand<Element>(probabilities, scores);
    }
    set_zero(out);
  }

  // The tile of a number, computed once more: a tile takes seven registers, which change_tile does not have to spare.
  // The compiler must not see that it is the same.
  __device__ __forceinline__ QueryTile tile_again(int number) const {
    asm volatile("" : "+r"(number));
    return query_tile<Tile>(p, number);
  }

  // The number of the next query tile with keys; -1 if none is left. Tiles without keys are done here: zeros.
  __device__ __forceinline__ int next_tile() {
    for (;;) {
      const int number = next_number();
      if (number >= p.order.numbers) return -1;
      const QueryTile tile = tile_again(number);
      if (tile.kv_tiles.begin < tile.kv_tiles.end) return number;
      write_empty_rows<Element>(p, tile, query(tile));
    }
  }

  __device__ __forceinline__ void run() {
    give_first_turn();
    Scores scores;
    Probabilities probabilities;
    Out out;
    Rows2 rows;
    int number = next_tile();
    if (number < 0) return;
    if constexpr (kTile.chained) {
      start(scores, probabilities, out, rows, tile_again(number));
#pragma unroll 1
      for (;;) {
        later_steps(scores, probabilities, out, rows, tile_again(number));
        const int next = next_tile();
        if (next < 0) break;
        change_tile(scores, probabilities, out, rows, number, next);
        number = next;
      }
      finish(probabilities, out, rows, tile_again(number));
    } else {
#pragma unroll 1
      for (; number >= 0; number = next_tile()) {
        const QueryTile tile = tile_again(number);
        start(scores, probabilities, out, rows, tile);
        later_steps(scores, probabilities, out, rows, tile);
        finish(probabilities, out, rows, tile);
      }
    }
  }
};

}  // namespace fovea::cuda::sm90

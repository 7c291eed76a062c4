// A consumer warpgroup: 64 query rows of the thread block's tile. Both operands of Q K^T are in shared memory. P stays
// in registers as the A operand of P V, and O stays there to the end.
#pragma once

#include "cuda/attention/sm90/accumulator.cuh"
#include "cuda/attention/sm90/cluster_combine.cuh"
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
  RingPosition<kTile.kv_stages> kv{};  // of the next V to multiply; S of this position's K tile is done
  RingPosition<ForwardShared<Tile>::kTileStages> next{};  // the query tile after the current one

  __device__ __forceinline__ bool first_lane() const { return thread % 32 == 0; }

  // A query tile takes eight registers, which the main loop does not have to spare. So it is read again wherever it is
  // needed: the next one from the ring, the current one from the warp's copy. The copy frees the ring's stage. Results
  // of the current tile are stored only after the next tile with keys is found. If the current tile kept its stage,
  // several tiles without keys would fill the ring, and both sides would wait for ever.
  __device__ __forceinline__ QueryTile next_tile() const { return shared.tiles[next.stage()]; }
  __device__ __forceinline__ QueryTile current_tile() const { return shared.current[warp_row() / kWarpRows]; }
  __device__ __forceinline__ void leave_next() {
    __syncwarp();  // all lanes have read the stage; after take_next(), all see the copy
    release(shared.tile_barriers, next, first_lane());
    next.advance();
  }
  // The next tile becomes the current one.
  __device__ __forceinline__ void take_next() {
    __syncwarp();  // no lane reads the former copy any more
    if (first_lane()) shared.current[warp_row() / kWarpRows] = next_tile();
    leave_next();
  }

  // Issues S = Q K^T as a wgmma group. Descriptors count in 16 bytes: 16 columns are 32 bytes, four such steps a panel.
  __device__ __forceinline__ void issue_scores(Scores& scores, const RingPosition<kTile.kv_stages>& k) {
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
    const std::uint64_t dv = ptx::mn_major_descriptor(shared_address(shared.v[kv.stage()]), kTile.keys * 128);
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

  // Ping-pong scheduling: the warpgroups take turns in a circle. Each waits at a named barrier of its own, where the
  // one before it arrives at the end of its turn. The last one gives the first its first turn.
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

  // The first of this warp's rows of the query tile.
  __device__ __forceinline__ int warp_row() const { return warpgroup * kWarpgroupRows + thread / 32 * kWarpRows; }
  __device__ __forceinline__ ThreadRows rows_of(const QueryTile& tile) const {
    return rows_of_thread(p, tile, warp_row() + thread % 32 / 4);
  }

  __device__ __forceinline__ void mask(Scores& scores, const QueryTile& tile, int kv_tile) {
    apply_mask(scores, p.shape, rows_of(tile).query, kv_tile * kTile.keys + 2 * (thread % 4));
  }

  // Scores become exponentials.
  __device__ __forceinline__ void softmax(Scores& scores, Rows2& rows) {
    update_maximum(scores, rows, p.shape.scale_log2e);
    exponentiate(scores, rows, p.shape.scale_log2e);
  }

  // One K/V tile. On entry `probabilities` holds P of the tile before, whose V has not been multiplied yet: K is one
  // tile ahead of V. On exit O is scaled to the new maximum, but lacks this tile's P V.
  template <bool kMasked>
  __device__ __forceinline__ void step(Scores& scores, Probabilities& probabilities, Out& out, Rows2& rows,
                                       const QueryTile& tile, int kv_tile) {
    wait_full(shared.k_barriers, kv.after());
    take_turn();
    issue_scores(scores, kv.after());
    wait_full(shared.v_barriers, kv);
    issue_out(out, probabilities);
    end_turn();
    wait_products<1>(scores);  // S is done; P V may still run
    release(shared.k_barriers, kv.after(), first_lane());
    if constexpr (kMasked) mask(scores, tile, kv_tile);
    softmax(scores, rows);
    wait_products<0>(out);
    release(shared.v_barriers, kv, first_lane());
    kv.advance();
    pack_operand<Element>(probabilities, scores);
    rescale(out, rows);  // only now, since P V above belongs to the old maximum
  }

  // The exponentials of a query tile's first K/V tile. It has the last keys, so a mask or the end of the sequence may
  // hide some of them.
  __device__ __forceinline__ void first_softmax(Scores& scores, Rows2& rows, const QueryTile& tile) {
    const int kv_tile = tile.kv_tiles.end - 1;
    if (kv_tile < tile.unmasked.begin || kv_tile >= tile.unmasked.end) mask(scores, tile, kv_tile);
    rows = {};
    softmax(scores, rows);
  }

  // S and exponentials of the thread block's first query tile, with nothing to overlap them.
  __device__ __forceinline__ void start(Scores& scores, Probabilities& probabilities, Out& out, Rows2& rows,
                                        const QueryTile& tile) {
    wait_full(shared.q_barriers, q);
    wait_full(shared.k_barriers, kv);
    issue_scores(scores, kv);
    wait_products<0>(scores);
    release(shared.k_barriers, kv, first_lane());
    first_softmax(scores, rows, tile);
    pack_operand<Element>(probabilities, scores);
    set_zero(out);
  }

  // All K/V tiles but the first, the last keys first. Only tiles at both ends of the window are partly masked.
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
    release(shared.q_barriers, q, first_lane());  // the last S has read Q
    q.advance();
  }

  __device__ __forceinline__ void store_out(Out& out, const QueryTile& tile, const RowScale& scale) {
    if constexpr (kTile.stages_out) {
      if (p.tma_out) {
        const std::uint32_t staged = shared_address(shared.out) + warp_row() * kTile.dim_v * 2;
        store_by_tma<Element>(p, tile, tile.first_query + warp_row(), staged, out, scale);
        return;
      }
    }
    write_rows<Element>(p, tile, rows_of(tile), out, scale);
  }

  template <class States>
  __device__ __forceinline__ RowScale finish_current(const Rows2& rows, States states) {
    const QueryTile tile = current_tile();
    return finish_rows<Element>(p, tile, rows_of(tile), rows, states);
  }
  __device__ __forceinline__ void store_current(Out& out, const RowScale& scale) {
    store_out(out, current_tile(), scale);
  }

  // The last P V and the epilogue of the thread block's last query tile.
  __device__ __forceinline__ void finish(Probabilities& probabilities, Out& out, const Rows2& rows) {
    wait_full(shared.v_barriers, kv);
    issue_out(out, probabilities);
    const RowScale scale = finish_current(rows, shared.states + warp_row() + thread % 32 / 4);
    wait_products<0>(out);
    release(shared.v_barriers, kv, first_lane());
    if (p.split.in_cluster)
      combine().put(out, scale);
    else
      store_current(out, scale);
  }
  __device__ __forceinline__ ClusterCombine<Element, Tile> combine() const {
    return {p, shared, warp_row() / kWarpRows, thread % 32};
  }

  // From one query tile to the next: S of the next one runs beside the last P V of this one. Where registers are few,
  // results are stored before the next tile's softmax. Thread blocks of a cluster have one query tile and never come
  // here, so finish_current gets no place for their states.
  __device__ __forceinline__ void change_tile(Scores& scores, Probabilities& probabilities, Out& out, Rows2& rows) {
    constexpr bool kStoreFirst = kTile.dim_v > 192;
    RowScale scale;
    if constexpr (kTile.turns) scale = finish_current(rows, nullptr);  // while this warpgroup waits for its turn
    wait_full(shared.q_barriers, q);
    wait_full(shared.k_barriers, kv.after());
    take_turn();
    issue_scores(scores, kv.after());
    wait_full(shared.v_barriers, kv);
    issue_out(out, probabilities);
    end_turn();
    if constexpr (!kTile.turns) scale = finish_current(rows, nullptr);
    if constexpr (!kStoreFirst) {
      wait_products<1>(scores);
      release(shared.k_barriers, kv.after(), first_lane());
      first_softmax(scores, rows, next_tile());
    }
    wait_products<0>(out);
    if constexpr (kStoreFirst) {
      ptx::wgmma_fence_operand(scores);
      release(shared.k_barriers, kv.after(), first_lane());
    }
    release(shared.v_barriers, kv, first_lane());
    kv.advance();
    if constexpr (!kStoreFirst) pack_operand<Element>(probabilities, scores);
    store_current(out, scale);
    if constexpr (kStoreFirst) {
      first_softmax(scores, rows, next_tile());
      pack_operand<Element>(probabilities, scores);
    }
    set_zero(out);
  }

  // Waits for the next query tile with keys; false if none is left. Rows of tiles without keys are written here.
  __device__ __forceinline__ bool find_next() {
    for (;;) {
      wait_full(shared.tile_barriers, next);
      const QueryTile tile = next_tile();
      if (tile.batch == kNoTile) return false;
      if (tile.has_keys()) return true;
      write_empty_rows<Element>(p, tile, rows_of(tile));
      leave_next();
    }
  }

  // All tiles of this thread block; false if none has keys.
  __device__ __forceinline__ bool run_tiles() {
    if (!find_next()) return false;
    Scores scores;
    Probabilities probabilities;
    Out out;
    Rows2 rows;
    start(scores, probabilities, out, rows, next_tile());
#pragma unroll 1
    for (;;) {
      take_next();
      later_steps(scores, probabilities, out, rows, current_tile());
      if (!find_next()) break;
      change_tile(scores, probabilities, out, rows);
    }
    finish(probabilities, out, rows);
    return true;
  }

  __device__ __forceinline__ void run() {
    give_first_turn();
    const bool has_results = run_tiles();
    if (p.split.in_cluster) {
      if (!has_results) combine().put_no_keys();
      combine().run();
    }
    if constexpr (kTile.stages_out) ptx::bulk_wait_read<0>();  // shared memory must outlive TMA's reads
  }
};

}  // namespace fovea::cuda::sm90

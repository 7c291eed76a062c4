// Backward on sm_90: a thread block holds a K/V tile and streams the Q and dO tiles of all query heads of the group past
// it. Three roles: a warp that loads by TMA, a warp that adds dQ to memory in a fixed order, and two key warpgroups. Each
// of these makes S^T, dP^T, dV and dK of 64 keys, and half of dQ = dS K of the step before, for which dS went through
// shared memory. So the two never wait for the same step, and one's arithmetic runs under the other's MMAs.
#pragma once

#include "cuda/attention/sm90/async_ptx.cuh"
#include "cuda/attention/sm90/backward_parameters.cuh"
#include "cuda/attention/sm90/wgmma_wide.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/arithmetic.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace fovea::cuda::sm90 {

constexpr int kWarpgroupThreads = 128;
constexpr int kBackwardThreads = (1 + kKeyWarpgroups) * kWarpgroupThreads;
constexpr int kLoaderRegisters = 24, kKeyRegisters = 240;

// Shared memory. Tiles are panels of 64 columns: rows of 128 bytes with the 128-byte swizzle. dS is transposed: its rows
// are keys, its panels 64 queries.
template <class Tile>
struct BackwardShared {
  static constexpr int kStages = Tile::kStages, kQueries = Tile::kQueries, kRow = Tile::kDim * 2;
  alignas(1024) std::byte k[kKeys * kRow];
  std::byte v[kKeys * kRow];  // at the end dK and dV leave through it
  std::byte q[kStages][kQueries * kRow];
  std::byte dout[kStages][kQueries * kRow];
  std::byte ds[2][kKeys * kQueries * 2];
  std::byte dq[kKeyWarpgroups][Tile::kDqSlots][kChunkBytes];
  alignas(128) float lse[kStages][kQueries];
  float delta[kStages][kQueries];
  std::uint64_t q_full[kStages], dout_full[kStages], empty[kStages];
  std::uint64_t ds_full[2], ds_empty[2];
  std::uint64_t dq_full[kKeyWarpgroups][Tile::kDqSlots], dq_empty[kKeyWarpgroups][Tile::kDqSlots];
};

// A ring's place: stage and parity of the current step.
template <int kStages>
struct Place {
  int stage = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

#ifdef FOVEA_WATCH
__device__ __forceinline__ void wait(const std::uint64_t& barrier, unsigned parity, unsigned long long* watch, int id) {
  const std::uint32_t address = ptx::shared_address_of(&barrier);
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  while (!ptx::mbarrier_try_wait(address, parity)) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (now - start > 2000000000ull) {
      volatile unsigned long long* at = watch + 16 * (threadIdx.x / 32);
      at[0] = 1 + id + 1000ull * blockIdx.x;
      __threadfence_system();
      if (now - start > 3000000000ull) __trap();
    }
  }
}
#else
__device__ __forceinline__ void wait(const std::uint64_t& barrier, unsigned parity, unsigned long long*, int) {
  const std::uint32_t address = ptx::shared_address_of(&barrier);
  while (!ptx::mbarrier_try_wait(address, parity)) {
  }
}
#endif

// All lanes have done their part: one arrival for the warp.
__device__ __forceinline__ void arrive_warp(std::uint64_t& barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(ptx::shared_address_of(&barrier));
}

// One lane loads: K and Q of the first step together, V and dO too; then Q with lse and dO with delta of every step.
template <class Tile>
__device__ __forceinline__ void load_tiles(const BackwardParameters& p, BackwardShared<Tile>& shared,
                                           const KeyTileWork& work) {
  using ptx::shared_address_of;
  constexpr int kQueries = Tile::kQueries, kQBytes = kQueries * Tile::kDim * 2, kKBytes = kKeys * Tile::kDim * 2;
  QueryWalk walk(work, p.shape);
  Place<Tile::kStages> place;
  const auto load = [&](std::byte* to, int rows, const CUtensorMap& map, std::uint32_t barrier, int row, int head) {
#pragma unroll
    for (int panel = 0; panel < Tile::kPanels; ++panel)
      ptx::tma_load(shared_address_of(to + panel * rows * 128), &map, barrier, panel * 64, row, head, work.batch);
  };
#pragma unroll 1
  for (int step = 0; step < work.steps; ++step) {
    const int stage = place.stage;
    const std::int64_t row = walk.place(p, work) * kQueries;
    wait(shared.empty[stage], place.parity ^ 1, p.watch, 1);
    const std::uint32_t q_full = shared_address_of(&shared.q_full[stage]);
    ptx::mbarrier_arrive_expect(q_full, kQBytes + kQueries * 4 + (step == 0 ? kKBytes : 0));
    if (step == 0) load(shared.k, kKeys, p.k, q_full, work.first_key(), work.head_kv);
    load(shared.q[stage], kQueries, p.q, q_full, walk.tile * kQueries, walk.head);
    ptx::bulk_load(shared_address_of(shared.lse[stage]), p.lse + row, kQueries * 4, q_full);
    const std::uint32_t dout_full = shared_address_of(&shared.dout_full[stage]);
    ptx::mbarrier_arrive_expect(dout_full, kQBytes + kQueries * 4 + (step == 0 ? kKBytes : 0));
    if (step == 0) load(shared.v, kKeys, p.v, dout_full, work.first_key(), work.head_kv);
    load(shared.dout[stage], kQueries, p.dout, dout_full, walk.tile * kQueries, walk.head);
    ptx::bulk_load(shared_address_of(shared.delta[stage]), p.delta + row, kQueries * 4, dout_full);
    walk.advance(p, work);
    place.advance();
  }
}

// Waits until the key tiles ahead have added to the query tile.
__device__ __forceinline__ void wait_turn(const unsigned* turns, unsigned turn, unsigned long long* watch) {
#ifdef FOVEA_WATCH
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  while (ptx::load_acquire(turns) != turn) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (now - start > 2000000000ull) {
      volatile unsigned long long* at = watch + 16 * (threadIdx.x / 32);
      at[0] = 1 + 100 + turn * 100000000ull + 1000ull * blockIdx.x;
      __threadfence_system();
      if (now - start > 3000000000ull) __trap();
    }
  }
#else
  while (ptx::load_acquire(turns) != turn) {
  }
#endif
}

// One lane adds the chunks that a key warpgroup leaves in shared memory, in turn. The first to come stores instead; the
// last finds a rounded chunk.
template <class Tile>
__device__ __forceinline__ void add_dq_chunks(const BackwardParameters& p, BackwardShared<Tile>& shared,
                                              const KeyTileWork& work, int chunk) {
  QueryWalk walk(work, p.shape);
  Place<Tile::kDqSlots> slot;
#pragma unroll 1
  for (int step = 0; step < work.steps; ++step) {
    const std::int64_t place = walk.place(p, work) * kKeyWarpgroups + chunk;
    const Turn turn = turn_of<Tile::kQueries>(p, work, walk.tile);
    const std::uint32_t from = ptx::shared_address_of(shared.dq[chunk][slot.stage]);
    const bool finished = Tile::kFinishes && turn.last;
    wait(shared.dq_full[chunk][slot.stage], slot.parity, p.watch, 2);
    if (Tile::kOrdered && !finished) {
      wait_turn(p.turns + place, turn.before, p.watch);
      ptx::fence_proxy_async_all();
    }
    if (Tile::kSilent) {
    } else if (finished) {
      ptx::tma_store(&p.dq_out, from, Tile::kPanels == 1 ? 0 : chunk * 64,
                     walk.tile * Tile::kQueries + (Tile::kPanels == 1 ? chunk * 64 : 0), walk.head, work.batch);
    } else if (Tile::kOrdered && turn.before == 0) {
      ptx::bulk_store(p.dq + place * kChunkFloats, from, kChunkBytes);
    } else {
      ptx::bulk_add(p.dq + place * kChunkFloats, from, kChunkBytes);
    }
    ptx::bulk_commit();
    ptx::bulk_wait_read<0>();
    ptx::mbarrier_arrive(ptx::shared_address_of(&shared.dq_empty[chunk][slot.stage]));
    if (Tile::kOrdered && !finished) {
      ptx::bulk_wait_all();
      ptx::fence_proxy_async_all();
      ptx::add_release(p.turns + place, 1);
    }
    walk.advance(p, work);
    slot.advance();
  }
  ptx::bulk_wait_all();
}

// What a thread of a key warpgroup knows of its fragments. Rows are keys: `row` and row + 8 of the tile. Columns are
// queries: 8 block + `column` and the next.
struct KeyFragment {
  int warpgroup, row, column;
  std::uint32_t store_row, store_chunk;  // where stmatrix_x4 writes: offset of the lane's row, and its 16-byte chunk
  __device__ __forceinline__ explicit KeyFragment(int warpgroup_) : warpgroup(warpgroup_) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x % kWarpgroupThreads / 32;
    row = warpgroup * 64 + warp * 16 + lane / 4;
    column = lane % 4 * 2;
    store_row = static_cast<std::uint32_t>(warpgroup * 64 + warp * 16 + lane / 8 % 2 * 8 + lane % 8) * 128;
    store_chunk = static_cast<std::uint32_t>((lane / 16) ^ (lane % 8)) * 16;
  }
  // Columns [16 i, 16 i + 16) of the warp's 16 rows, in panels of 64 columns and kKeys rows.
  __device__ __forceinline__ std::uint32_t store_offset(int i) const {
    return i / 4 * (kKeys * 128) + store_row + (store_chunk ^ (i % 4 * 32));
  }
};

// Whether the query of block `block`, column `e` sees the fragment's key row + 8 r.
struct FragmentMask {
  int first;  // key - query - window_begin of the first of both
  unsigned width;
  int keys;  // keys from the fragment's row on
  __device__ __forceinline__ FragmentMask(const Shape& s, const KeyFragment& f, int first_key, int first_query)
      : first(first_key + f.row - first_query - f.column - s.window_begin),
        width(static_cast<unsigned>(s.window_end - s.window_begin)),
        keys(s.len_k - first_key - f.row) {}
  __device__ __forceinline__ bool visible(int block, int e, int r) const {
    return static_cast<unsigned>(first + 8 * r - 8 * block - e) < width && 8 * r < keys;
  }
};

// scores = P^T, in place of K Q^T.
template <bool kMasked, int kCount>
__device__ __forceinline__ void probabilities(float (&scores)[kCount], const float* lse, float scale_log2e,
                                              const KeyFragment& f, const FragmentMask& mask) {
#pragma unroll
  for (int block = 0; block < kCount / 4; ++block) {
    const float2 row_lse = *reinterpret_cast<const float2*>(lse + 8 * block + f.column);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& p = scores[4 * block + i];
      p = ptx::exp2_approx(fmaf(p, scale_log2e, i % 2 == 0 ? -row_lse.x : -row_lse.y));
      if (kMasked && !mask.visible(block, i % 2, i / 2)) p = 0.0f;
    }
  }
}

// dp = dS^T = P^T (dP^T - delta), in place of dP^T. Where P is 0 it stays 0, whatever dP is.
template <bool kMasked, int kCount>
__device__ __forceinline__ void score_gradients(const float (&p)[kCount], float (&dp)[kCount], const float* delta,
                                                const KeyFragment& f) {
#pragma unroll
  for (int block = 0; block < kCount / 4; ++block) {
    const float2 row_delta = *reinterpret_cast<const float2*>(delta + 8 * block + f.column);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = 4 * block + i;
      dp[at] = p[at] * (dp[at] - (i % 2 == 0 ? row_delta.x : row_delta.y));
      if (kMasked && p[at] == 0.0f) dp[at] = 0.0f;
    }
  }
}

template <class Element, int kCount>
__device__ __forceinline__ void pack_operand(std::uint32_t (&to)[kCount / 8][4], const float (&from)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) to[i / 4][i % 4] = ptx::pack<Element>(from[2 * i], from[2 * i + 1]);
}

// c = a b^T of 64 rows of a, in panels of kKeys rows, and all rows of b, in panels of kCount * 2 rows.
template <class Tile, int kCount>
__device__ __forceinline__ void issue_scores(float (&c)[kCount], std::uint64_t a, std::uint64_t b) {
#pragma unroll
  for (int i = 0; i < Tile::kDim / 16; ++i) {
    const std::uint64_t a_step = a + i / 4 * (kKeys * 8) + i % 4 * 2, b_step = b + i / 4 * (kCount * 16) + i % 4 * 2;
    if (i == 0) {
      ptx::wgmma_rows_rows<typename Tile::Element, false>(c, a_step, b_step);
    } else {
      ptx::wgmma_rows_rows<typename Tile::Element, true>(c, a_step, b_step);
    }
  }
}

// c += a b.
template <class Element, int kSteps, int kCount>
__device__ __forceinline__ void issue_gradient(float (&c)[kCount], const std::uint32_t (&a)[kSteps][4],
                                               std::uint64_t b) {
#pragma unroll
  for (int i = 0; i < kSteps; ++i) ptx::wgmma_registers_columns<Element, true>(c, a[i], b + i * 128);
}

// All threads of one key warpgroup have come here.
__device__ __forceinline__ void warpgroup_barrier(int warpgroup) {
  if (warpgroup == 0) {
    ptx::named_barrier<2, kWarpgroupThreads>();
  } else {
    ptx::named_barrier<3, kWarpgroupThreads>();
  }
}

// A gradient of 64 keys leaves through the warpgroup's rows of V, which nobody else reads.
template <class Tile>
__device__ __forceinline__ void store_gradient(const BackwardParameters& p, BackwardShared<Tile>& shared,
                                               const KeyTileWork& work, const KeyFragment& f,
                                               const float (&values)[Tile::kDim / 2], const CUtensorMap& map) {
  std::uint32_t packed[Tile::kDim / 16][4];
  pack_operand<typename Tile::Element>(packed, values);
  const std::uint32_t base = ptx::shared_address_of(shared.v);
#pragma unroll
  for (int i = 0; i < Tile::kDim / 16; ++i) ptx::stmatrix_x4(base + f.store_offset(i), packed[i]);
  ptx::fence_proxy_async();
  warpgroup_barrier(f.warpgroup);
  if (threadIdx.x % kWarpgroupThreads == 0) {
#pragma unroll
    for (int panel = 0; panel < Tile::kPanels; ++panel)
      ptx::tma_store(&map, base + panel * (kKeys * 128) + f.warpgroup * (64 * 128), panel * 64,
                     work.first_key() + f.warpgroup * 64, work.head_kv, work.batch);
    ptx::bulk_commit();
    ptx::bulk_wait_read<0>();
  }
  warpgroup_barrier(f.warpgroup);
}

// Half of dQ = dS K: 64 queries x 64 columns. With 64 columns the warpgroups divide the queries, with 128 the columns.
// Issues only; the caller waits.
template <class Tile>
__device__ __forceinline__ void issue_dq(float (&dq)[32], BackwardShared<Tile>& shared, int slot, int warpgroup) {
  const int ds_panel = Tile::kPanels == 1 ? warpgroup : 0, k_panel = Tile::kPanels == 1 ? 0 : warpgroup;
  const std::uint64_t ds =
      ptx::panel_descriptor(ptx::shared_address_of(shared.ds[slot]) + ds_panel * (kKeys * 128));
  const std::uint64_t keys = ptx::panel_descriptor(ptx::shared_address_of(shared.k) + k_panel * (kKeys * 128));
#pragma unroll
  for (int i = 0; i < kKeys / 16; ++i) {
    if (i == 0) {
      ptx::wgmma_columns_columns<typename Tile::Element, false>(dq, ds, keys);
    } else {
      ptx::wgmma_columns_columns<typename Tile::Element, true>(dq, ds + i * 128, keys + i * 128);
    }
  }
}

// Adds what the other key tiles have left in memory, and leaves the rounded sum as a box of 64 rows of 128 bytes.
template <class Tile>
__device__ __forceinline__ void finish_dq(float (&dq)[32], const BackwardParameters& p, std::uint32_t to,
                                          const KeyFragment& f, std::int64_t place, unsigned before) {
  if (before > 0) {
    if (threadIdx.x % 32 == 0) wait_turn(p.turns + place, before, p.watch);
    __syncwarp();
    const float4* from = reinterpret_cast<const float4*>(p.dq + place * kChunkFloats) + threadIdx.x % kWarpgroupThreads;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 sum = __ldcg(from + i * kWarpgroupThreads);
      dq[4 * i] += sum.x;
      dq[4 * i + 1] += sum.y;
      dq[4 * i + 2] += sum.z;
      dq[4 * i + 3] += sum.w;
    }
  }
#pragma unroll
  for (int i = 0; i < 32; ++i) dq[i] *= p.shape.scale;
  std::uint32_t packed[4][4];
  pack_operand<typename Tile::Element>(packed, dq);
#pragma unroll
  for (int i = 0; i < 4; ++i) ptx::stmatrix_x4(to + f.store_offset(i) - f.warpgroup * (64 * 128), packed[i]);
}

// Hands the chunk to the lane that adds it.
template <class Tile>
__device__ __forceinline__ void leave_dq(float (&dq)[32], const BackwardParameters& p, BackwardShared<Tile>& shared,
                                         const KeyTileWork& work, const KeyFragment& f, const QueryWalk& walk,
                                         Place<Tile::kDqSlots>& slot) {
  const std::int64_t place = walk.place(p, work) * kKeyWarpgroups + f.warpgroup;
  const int thread = threadIdx.x % kWarpgroupThreads;
  if constexpr (Tile::kDirect) {
    float* to = p.dq + place * kChunkFloats + thread * 4;
#pragma unroll
    for (int i = 0; i < 8; ++i) ptx::add_global_float4(to + i * 512, dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
    return;
  }
  wait(shared.dq_empty[f.warpgroup][slot.stage], slot.parity ^ 1, p.watch, 4);
  const std::uint32_t to = ptx::shared_address_of(shared.dq[f.warpgroup][slot.stage]);
  const Turn turn = turn_of<Tile::kQueries>(p, work, walk.tile);
  if (Tile::kFinishes && turn.last) {
    finish_dq<Tile>(dq, p, to, f, place, turn.before);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      ptx::store_shared_float4(to + thread * 16 + i * 2048, dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
  }
  ptx::fence_proxy_async();
  arrive_warp(shared.dq_full[f.warpgroup][slot.stage]);
  slot.advance();
}

// All MMAs of 64 keys: S^T, dP^T, dV and dK of a step, then dQ of the step before.
template <class Tile>
__device__ __forceinline__ void multiply_keys(const BackwardParameters& p, BackwardShared<Tile>& shared,
                                              const KeyTileWork& work, int warpgroup) {
  using Element = typename Tile::Element;
  using ptx::shared_address_of;
  constexpr int kQueries = Tile::kQueries, kCount = kQueries / 2;
  const Shape& s = p.shape;
  const KeyFragment f(warpgroup);
  float dk[Tile::kDim / 2], dv[Tile::kDim / 2];
#pragma unroll
  for (int i = 0; i < Tile::kDim / 2; ++i) dk[i] = dv[i] = 0.0f;
  ptx::keep_registers(dk);
  ptx::keep_registers(dv);
  // Query tiles wholly visible. Rows beyond the last query have lse = +inf.
  const int first_key = work.first_key();
  const Range all = queries_of_all(s, first_key, first_key + kKeys - 1);
  const Range unmasked = {first_key + kKeys > s.len_k ? p.query_tiles : (all.begin + kQueries - 1) / kQueries,
                          all.end == s.len_q ? p.query_tiles : all.end / kQueries};
  QueryWalk walk(work, s), walk_before(work, s);  // dQ belongs to the step before
  Place<Tile::kStages> place;
  Place<2> slot;
  Place<Tile::kDqSlots> dq_slot;
  const std::uint64_t k_rows = ptx::panel_descriptor(shared_address_of(shared.k) + warpgroup * (64 * 128));
  const std::uint64_t v_rows = ptx::panel_descriptor(shared_address_of(shared.v) + warpgroup * (64 * 128));
#pragma unroll 1
  for (int step = 0; step < work.steps; ++step) {
    const int stage = place.stage;
    const std::uint32_t q = shared_address_of(shared.q[stage]), dout = shared_address_of(shared.dout[stage]);
    float scores[kCount], dp[kCount];
    std::uint32_t p_operand[kQueries / 16][4], ds_operand[kQueries / 16][4];
    wait(shared.q_full[stage], place.parity, p.watch, 5);
    ptx::wgmma_fence();
    issue_scores<Tile>(scores, k_rows, ptx::panel_descriptor(q));
    ptx::wgmma_commit();
    wait(shared.dout_full[stage], place.parity, p.watch, 6);
    ptx::wgmma_fence();
    issue_scores<Tile>(dp, v_rows, ptx::panel_descriptor(dout));
    ptx::wgmma_commit();
    const bool masked = walk.tile < unmasked.begin || walk.tile >= unmasked.end;
    const FragmentMask mask(s, f, first_key, walk.tile * kQueries);
    ptx::wgmma_wait<1>();
    ptx::keep_registers(scores);
    if (masked) {
      probabilities<true>(scores, shared.lse[stage], s.scale_log2e, f, mask);
    } else {
      probabilities<false>(scores, shared.lse[stage], s.scale_log2e, f, mask);
    }
    if constexpr (Tile::kEarlyDv) {
      pack_operand<Element>(p_operand, scores);
      ptx::keep_registers(p_operand);
      ptx::wgmma_fence();
      issue_gradient<Element>(dv, p_operand, ptx::panel_descriptor(dout, kQueries * 128));
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();  // dP^T
    } else {
      ptx::wgmma_wait<0>();
    }
    ptx::keep_registers(dp);
    if (masked) {
      score_gradients<true>(scores, dp, shared.delta[stage], f);
    } else {
      score_gradients<false>(scores, dp, shared.delta[stage], f);
    }
    if constexpr (!Tile::kEarlyDv) {
      pack_operand<Element>(p_operand, scores);
      ptx::keep_registers(p_operand);
    }
    pack_operand<Element>(ds_operand, dp);
    wait(shared.ds_empty[slot.stage], slot.parity ^ 1, p.watch, 7);
    const std::uint32_t ds = shared_address_of(shared.ds[slot.stage]);
#pragma unroll
    for (int i = 0; i < kQueries / 16; ++i) ptx::stmatrix_x4(ds + f.store_offset(i), ds_operand[i]);
    ptx::fence_proxy_async();
    arrive_warp(shared.ds_full[slot.stage]);
    ptx::wgmma_fence();
    if constexpr (!Tile::kEarlyDv)
      issue_gradient<Element>(dv, p_operand, ptx::panel_descriptor(dout, kQueries * 128));
    issue_gradient<Element>(dk, ds_operand, ptx::panel_descriptor(q, kQueries * 128));
    ptx::wgmma_commit();
    if (step > 0) {
      wait(shared.ds_full[slot.stage ^ 1], slot.parity ^ (slot.stage ^ 1), p.watch, 3);
      float dq[32];
      ptx::wgmma_fence();
      issue_dq<Tile>(dq, shared, slot.stage ^ 1, warpgroup);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
      ptx::keep_registers(p_operand);
      ptx::keep_registers(ds_operand);
      arrive_warp(shared.empty[stage]);
      ptx::wgmma_wait<0>();
      ptx::keep_registers(dq);
      arrive_warp(shared.ds_empty[slot.stage ^ 1]);
      leave_dq<Tile>(dq, p, shared, work, f, walk_before, dq_slot);
    } else {
      ptx::wgmma_wait<0>();
      ptx::keep_registers(p_operand);
      ptx::keep_registers(ds_operand);
      arrive_warp(shared.empty[stage]);
    }
    walk_before = walk;
    walk.advance(p, work);
    place.advance();
    slot.advance();
  }
  if (work.steps > 0) {
    wait(shared.ds_full[slot.stage ^ 1], slot.parity ^ (slot.stage ^ 1), p.watch, 8);
    float dq[32];
    ptx::wgmma_fence();
    issue_dq<Tile>(dq, shared, slot.stage ^ 1, warpgroup);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::keep_registers(dq);
    leave_dq<Tile>(dq, p, shared, work, f, walk_before, dq_slot);
  }
#pragma unroll
  for (int i = 0; i < Tile::kDim / 2; ++i) dk[i] *= s.scale;
  store_gradient<Tile>(p, shared, work, f, dv, p.dv);
  store_gradient<Tile>(p, shared, work, f, dk, p.dk);
}

template <class Tile>
__device__ __forceinline__ void initialise_barriers(BackwardShared<Tile>& shared) {
  const auto initialise = [](std::uint64_t& barrier, int arrivals) {
    ptx::mbarrier_init(ptx::shared_address_of(&barrier), static_cast<std::uint32_t>(arrivals));
  };
  for (int i = 0; i < Tile::kStages; ++i) {
    initialise(shared.q_full[i], 1);
    initialise(shared.dout_full[i], 1);
    initialise(shared.empty[i], 4 * kKeyWarpgroups);
  }
  for (int i = 0; i < 2; ++i) {
    initialise(shared.ds_full[i], 4 * kKeyWarpgroups);
    initialise(shared.ds_empty[i], 4 * kKeyWarpgroups);
  }
  for (int i = 0; i < kKeyWarpgroups; ++i) {
    for (int slot = 0; slot < Tile::kDqSlots; ++slot) {
      initialise(shared.dq_full[i][slot], 4);
      initialise(shared.dq_empty[i][slot], 1);
    }
  }
  ptx::fence_mbarrier_init();
}

template <class Tile>
__global__ void __launch_bounds__(kBackwardThreads, 1) backward(const __grid_constant__ BackwardParameters p) {
  static_assert(sizeof(BackwardShared<Tile>) <= 232448);
  extern __shared__ __align__(1024) std::byte shared_memory[];
  auto& shared = *reinterpret_cast<BackwardShared<Tile>*>(shared_memory);
  if (threadIdx.x == 0) initialise_barriers(shared);
  __syncthreads();
  ptx::griddepcontrol_wait();
  const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarpgroupThreads, 0);
  const KeyTileWork work = key_tile_work<Tile::kQueries>(p);
  if (warpgroup == 0) {
    ptx::give_registers<kLoaderRegisters>();
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
    if (warp == 0 && ptx::elect_one()) load_tiles<Tile>(p, shared, work);
    if (!Tile::kDirect && (warp == 1 || warp == 2) && ptx::elect_one()) add_dq_chunks<Tile>(p, shared, work, warp - 1);
  } else {
    ptx::take_registers<kKeyRegisters>();
    multiply_keys<Tile>(p, shared, work, warpgroup - 1);
  }
}

}  // namespace fovea::cuda::sm90

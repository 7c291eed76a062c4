// src/cuda/ptx/tma.cuh, mbarrier.cuh, ordered_memory.cuh and wgmma_wide.cuh on the device against a scalar model, bit for
// bit: boxes with the swizzle, loaded and stored, what lies outside a tensor, a ring of stages over many phases, products
// of what TMA loaded, and additions of thread blocks in turn.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "cuda/attention/sm90/tensor_map.h"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/ordered_memory.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma_wide.cuh"
#include "ptx_checks.h"

namespace fovea::cuda {
namespace {

constexpr int kPanel = 64, kRowBytes = 128;  // of a panel

template <class Element>
constexpr ElementKind kKind = std::is_same_v<Element, __half> ? ElementKind::fp16 : ElementKind::bf16;

__device__ std::uint32_t address_of(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

template <class Element>
std::vector<Element> integers(std::size_t count, std::mt19937& random) {
  std::vector<Element> values(count);
  for (Element& value : values) value = Element(static_cast<float>(static_cast<int>(random() % 17) - 8));
  return values;
}

// Boxes of `rows` x 64 from row 0 on, one after the other through two stages and with each cache policy, to `to` as they lie in shared memory.
struct BoxParameters {
  CUtensorMap map;
  int boxes, rows, column, head, batch;
  std::uint16_t* to;
};

__global__ void copy_boxes(const __grid_constant__ BoxParameters p) {
  extern __shared__ __align__(1024) std::byte shared[];
  __shared__ std::uint64_t full[2], empty[2];
  if constexpr (ptx::kHasWgmma) {
    const int words = p.rows * kPanel, threads = static_cast<int>(blockDim.x) - 32;
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < 2; ++stage) {
        ptx::mbarrier_init(address_of(&full[stage]), 1);
        ptx::mbarrier_init(address_of(&empty[stage]), threads);
      }
      ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int box = 0; box < p.boxes; ++box) {
        const int stage = box % 2;
        ptx::mbarrier_wait(address_of(&empty[stage]), (box / 2 % 2) ^ 1);
        ptx::mbarrier_arrive_expect(address_of(&full[stage]), p.rows * kRowBytes);
        const std::uint32_t at = address_of(shared) + stage * p.rows * kRowBytes, barrier = address_of(&full[stage]);
        if (box % 3 == 0)
          ptx::tma_load_4d(at, &p.map, barrier, p.column, box * p.rows, p.head, p.batch);
        else
          ptx::tma_load_4d(at, &p.map, barrier, p.column, box * p.rows, p.head, p.batch,
                           box % 3 == 1 ? ptx::CachePolicy::evict_normal : ptx::CachePolicy::evict_first);
      }
    } else if (threadIdx.x >= 32) {
      for (int box = 0; box < p.boxes; ++box) {
        const int stage = box % 2;
        ptx::mbarrier_wait(address_of(&full[stage]), box / 2 % 2);
        const auto* from = reinterpret_cast<const std::uint16_t*>(shared + stage * p.rows * kRowBytes);
        for (int i = static_cast<int>(threadIdx.x) - 32; i < words; i += threads) p.to[box * words + i] = from[i];
        ptx::mbarrier_arrive(address_of(&empty[stage]));
      }
    }
  }
}

// A tensor [2, 2, len, dim] whose rows are `row_stride` apart, heads inside rows: as packed projections lie.
bool boxes_are_exact() {
  std::mt19937 random(6);
  constexpr int kBatch = 2, kHeads = 2, kLen = 75, kDim = 72, kStride = 3 * kHeads * kDim, kRows = 16, kBoxes = 6;
  const auto values = integers<__half>(static_cast<std::size_t>(kBatch * kLen * kStride), random);
  const OnDevice<__half> memory(values);
  const ConstTensorRef t{memory.data(), std::int64_t{kLen} * kStride, kDim, kStride, ElementKind::fp16, true};
  for (int which = 0; which < 8; ++which) {
    const int column = which % 2 * kPanel, head = which / 2 % 2, batch = which / 4;
    std::vector<std::uint16_t> wanted(kBoxes * kRows * kPanel);
    for (int row = 0; row < kBoxes * kRows; ++row) {
      for (int c = 0; c < kPanel; ++c) {
        const bool inside = row < kLen && column + c < kDim;
        const int place = row * kPanel + ((c / 8) ^ (row % 8)) * 8 + c % 8;
        const auto from = static_cast<std::size_t>((batch * kLen + row) * kStride + head * kDim + column + c);
        if (inside) std::memcpy(&wanted[static_cast<std::size_t>(place)], &values[from], 2);
      }
    }
    const OnDevice<std::uint16_t> to(std::vector<std::uint16_t>(wanted.size(), 0xffff));
    BoxParameters p{
        .map = {}, .boxes = kBoxes, .rows = kRows, .column = column, .head = head, .batch = batch, .to = to.data()};
    if (!sm90::encode_tensor_map(p.map, t, {kDim, kLen, kHeads, kBatch, kRows})) return false;
    copy_boxes<<<1, 96, 2 * kRows * kRowBytes>>>(p);
    if (to.read() != wanted) return false;
  }
  return true;
}

// One box of `rows` x 64 from `x`, ... on: loaded through a map of five dimensions, and stored through one of four.
struct MoveParameters {
  CUtensorMap from, to;
  int rows, head, row, group, batch;  // of the box in `from`; the same rows of `to`'s only head
  std::uint16_t* loaded;
};

__global__ void move_box(const __grid_constant__ MoveParameters p) {
  extern __shared__ __align__(1024) std::byte shared[];
  __shared__ std::uint64_t full;
  if constexpr (ptx::kHasWgmma) {
    auto* box = reinterpret_cast<std::uint16_t*>(shared);
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(address_of(&full), 1);
      ptx::fence_mbarrier_init();
      ptx::mbarrier_arrive_expect(address_of(&full), p.rows * kRowBytes);
      ptx::tma_prefetch_5d(&p.from, 0, p.head, p.row, p.group, p.batch);
      ptx::tma_load_5d(address_of(box), &p.from, address_of(&full), 0, p.head, p.row, p.group, p.batch);
    }
    __syncthreads();
    ptx::mbarrier_wait(address_of(&full), 0);
    for (int i = static_cast<int>(threadIdx.x); i < p.rows * kPanel; i += static_cast<int>(blockDim.x)) {
      p.loaded[i] = box[i];
      box[i] ^= 1;  // the store must see what threads wrote
    }
    ptx::fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
      ptx::tma_store_4d(&p.to, address_of(box), 0, p.row, 0, p.batch);
      ptx::bulk_commit();
      ptx::bulk_wait_read<0>();
    }
  }
}

// Queries of two groups of three heads, [2, 6, len, dim], heads inside rows. A box holds five rows of a group's heads.
// It is stored as 15 rows of another tensor, [2, 1, len, dim]: its last rows and columns lie outside of that.
bool boxes_of_groups_are_exact() {
  std::mt19937 random(8);
  constexpr int kBatch = 2, kGroup = 3, kGroups = 2, kLen = 13, kDim = 40, kRows = 5, kBoxRows = kGroup * kRows;
  constexpr int kStride = kGroup * kGroups * kDim;
  const auto values = integers<__half>(static_cast<std::size_t>(kBatch * kLen * kStride), random);
  const OnDevice<__half> memory(values);
  const ConstTensorRef from{memory.data(), std::int64_t{kLen} * kStride, kDim, kStride, ElementKind::fp16, true};
  for (int which = 0; which < 12; ++which) {
    const int row = which % 3 * kRows, group = which / 3 % kGroups, batch = which / 6;
    std::vector<std::uint16_t> wanted(kBoxRows * kPanel), stored(kBatch * kLen * kDim, 0xffff);
    for (int i = 0; i < kBoxRows * kDim; ++i) {
      const int at = i / kDim, c = i % kDim, query = row + at / kGroup;
      std::uint16_t& value = wanted[static_cast<std::size_t>(at * kPanel + ((c / 8) ^ (at % 8)) * 8 + c % 8)];
      const int head = group * kGroup + at % kGroup;
      if (query < kLen)
        std::memcpy(&value, &values[static_cast<std::size_t>((batch * kLen + query) * kStride + head * kDim + c)], 2);
      if (row + at < kLen) stored[static_cast<std::size_t>((batch * kLen + row + at) * kDim + c)] = value ^ 1;
    }
    const OnDevice<std::uint16_t> loaded(std::vector<std::uint16_t>(wanted.size(), 0xffff)),
        result(std::vector<std::uint16_t>(stored.size(), 0xffff));
    const ConstTensorRef to{result.data(), kLen * kDim, 0, kDim, ElementKind::fp16, true};
    MoveParameters p{.from = {},
                     .to = {},
                     .rows = kBoxRows,
                     .head = 0,
                     .row = row,
                     .group = group,
                     .batch = batch,
                     .loaded = loaded.data()};
    if (!sm90::encode_query_map(p.from, from, {kDim, kGroup, kLen, kGroups, kBatch, kGroup, kRows})) return false;
    if (!sm90::encode_tensor_map(p.to, to, {kDim, kLen, 1, kBatch, kBoxRows})) return false;
    move_box<<<1, 128, kBoxRows * kRowBytes>>>(p);
    if (loaded.read() != wanted || result.read() != stored) return false;
  }
  return true;
}

struct ProductParameters {
  CUtensorMap q, k, v;  // [64, 128], [kColumns, 128], [kColumns, kDimV]
  const void* left;     // [64, kColumns]
  float *scores, *out;  // q k^T and left v
};

template <int kCount>
__device__ void put(float* to, const float (&sum)[kCount], int columns) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
  for (int i = 0; i < kCount; ++i) to[(row + i / 2 % 2 * 8) * columns + i / 4 * 8 + lane % 4 * 2 + i % 2] = sum[i];
}

template <class Element, int kColumns, int kDimV>
__global__ void multiply_loaded(const __grid_constant__ ProductParameters p) {
  extern __shared__ __align__(1024) std::byte shared[];
  __shared__ std::uint64_t full;
  if constexpr (ptx::kHasWgmma) {
    constexpr int kQBytes = 64 * kRowBytes, kKBytes = kColumns * kRowBytes;  // of a panel
    const std::uint32_t q = address_of(shared), k = q + 2 * kQBytes, v = k + 2 * kKBytes, barrier = address_of(&full);
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(barrier, 1);
      ptx::fence_mbarrier_init();
      ptx::mbarrier_arrive_expect(barrier, 2 * kQBytes + (2 + kDimV / kPanel) * kKBytes);
      for (int panel = 0; panel < 2; ++panel) {
        ptx::tma_load_4d(q + panel * kQBytes, &p.q, barrier, panel * kPanel, 0, 0, 0);
        ptx::tma_load_4d(k + panel * kKBytes, &p.k, barrier, panel * kPanel, 0, 0, 0);
      }
      for (int panel = 0; panel < kDimV / kPanel; ++panel)
        ptx::tma_load_4d(v + panel * kKBytes, &p.v, barrier, panel * kPanel, 0, 0, 0);
    }
    __syncthreads();
    ptx::mbarrier_wait(barrier, 0);
    const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
    std::uint32_t left[kColumns / 4];
    for (int i = 0; i < kColumns / 4; ++i) {
      const auto* pair = static_cast<const Element*>(p.left) + (row + i % 2 * 8) * kColumns + i / 2 * 8 + lane % 4 * 2;
      left[i] = *reinterpret_cast<const std::uint32_t*>(pair);
    }
    float scores[kColumns / 2], out[kDimV / 2];
    for (float& value : out) value = 0.0f;
    ptx::wgmma_fence_operand(scores);
    ptx::wgmma_fence_operand(out);
    ptx::wgmma_fence();
    const std::uint64_t dq = ptx::k_major_descriptor(q), dk = ptx::k_major_descriptor(k);
    ptx::wgmma_ss<Element, false>(scores, dq, dk);
#pragma unroll
    for (int i = 1; i < 8; ++i)
      ptx::wgmma_ss<Element, true>(scores, dq + (i / 4 * kQBytes + i % 4 * 32) / 16,
                                   dk + (i / 4 * kKBytes + i % 4 * 32) / 16);
    ptx::wgmma_commit();
    const std::uint64_t dv = ptx::mn_major_descriptor(v, kKBytes);
#pragma unroll
    for (int i = 0; i < kColumns / 16; ++i) ptx::wgmma_rs<Element, true, true>(out, left + 4 * i, dv + i * 128);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::wgmma_fence_operand(scores);
    ptx::wgmma_fence_operand(out);
    put(p.scores, scores, kColumns);
    put(p.out, out, kDimV);
  }
}

// c [rows, columns] = a [rows, depth] b, with b [columns, depth] or, if not transposed, [depth, columns].
template <class Element>
std::vector<float> product(const std::vector<Element>& a, const std::vector<Element>& b, std::size_t columns,
                           std::size_t depth, bool transposed) {
  std::vector<float> c(64 * columns);
  for (std::size_t i = 0; i < 64; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      for (std::size_t k = 0; k < depth; ++k)
        c[i * columns + j] +=
            static_cast<float>(a[i * depth + k]) * static_cast<float>(b[transposed ? j * depth + k : k * columns + j]);
  return c;
}

template <class Element>
bool encode(CUtensorMap& map, const OnDevice<Element>& memory, int rows, int columns) {
  const ConstTensorRef t{memory.data(), 0, 0, columns, kKind<Element>, true};
  return sm90::encode_tensor_map(map, t, {columns, rows, 1, 1, rows});
}

template <class Element, int kColumns, int kDimV>
bool loaded_products_are_exact() {
  std::mt19937 random(7);
  constexpr int kShared = (2 * 64 + (2 + kDimV / kPanel) * kColumns) * kRowBytes;
  check(cudaFuncSetAttribute(multiply_loaded<Element, kColumns, kDimV>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             kShared),
        "cudaFuncSetAttribute");
  for (int round = 0; round < 10; ++round) {
    const auto q = integers<Element>(64 * 128, random), k = integers<Element>(kColumns * 128, random);
    const auto v = integers<Element>(kColumns * kDimV, random), left = integers<Element>(64 * kColumns, random);
    const OnDevice<Element> q_device(q), k_device(k), v_device(v), left_device(left);
    const OnDevice<float> scores(std::vector<float>(64 * kColumns, -1.0f)), out(std::vector<float>(64 * kDimV, -1.0f));
    ProductParameters p{
        .q = {}, .k = {}, .v = {}, .left = left_device.data(), .scores = scores.data(), .out = out.data()};
    if (!encode(p.q, q_device, 64, 128) || !encode(p.k, k_device, kColumns, 128) ||
        !encode(p.v, v_device, kColumns, kDimV))
      return false;
    multiply_loaded<Element, kColumns, kDimV><<<1, 128, kShared>>>(p);
    if (scores.read() != product(q, k, kColumns, 128, true) || out.read() != product(left, v, kDimV, kColumns, false))
      return false;
  }
  return true;
}

// What thread block `block` adds at place `i`: a float whose sum with others depends on their order.
__host__ __device__ float addend(int block, int i) {
  return static_cast<float>(1 << (block * 5 + i) % 23) * 1.1f + static_cast<float>(i);
}

// Every thread block adds to all places when the counter says that it is its turn; one lane of another warp reads and
// releases the counter.
__global__ void add_in_turn(float* sums, unsigned* turns) {
  if constexpr (ptx::kHasWgmma) {
    const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
    if (thread == 128) {
      while (ptx::load_acquire(turns) != blockIdx.x) {
      }
    }
    __syncthreads();
    if (thread < 128)
      ptx::add_float4(sums + 4 * thread, addend(block, 4 * thread), addend(block, 4 * thread + 1),
                      addend(block, 4 * thread + 2), addend(block, 4 * thread + 3));
    __syncthreads();
    if (thread == 128) ptx::add_release(turns, 1);
  }
}

bool additions_keep_their_turns() {
  constexpr int kPlaces = 512, kBlocks = 100;
  std::vector<float> want(kPlaces);
  for (int block = 0; block < kBlocks; ++block) {
    for (int i = 0; i < kPlaces; ++i) want[i] += addend(block, i);
  }
  for (int round = 0; round < 100; ++round) {
    const OnDevice<float> sums(std::vector<float>(kPlaces, 0.0f));
    const OnDevice<unsigned> turns(std::vector<unsigned>(1));
    add_in_turn<<<kBlocks, 160>>>(sums.data(), turns.data());
    if (sums.read() != want) return false;
  }
  return true;
}

}  // namespace

std::span<const NamedCheck> tma_checks() {
  static constexpr NamedCheck kChecks[] = {
      {"tma_load_4d with each policy, and mbarriers: boxes through a ring of two stages", boxes_are_exact},
      {"tma_load_5d, tma_prefetch_5d and tma_store_4d: heads of a group in one box", boxes_of_groups_are_exact},
      {"add_float4, load_acquire and add_release: thread blocks add in turn", additions_keep_their_turns},
      {"wgmma_ss m64n64, wgmma_rs m64n64, bf16", loaded_products_are_exact<__nv_bfloat16, 64, 64>},
      {"wgmma_ss m64n128, wgmma_rs m64n128, bf16", loaded_products_are_exact<__nv_bfloat16, 128, 128>},
      {"wgmma_ss m64n112, wgmma_rs m64n128, fp16", loaded_products_are_exact<__half, 112, 128>},
      {"wgmma_ss m64n96, wgmma_rs m64n192, bf16", loaded_products_are_exact<__nv_bfloat16, 96, 192>},
      {"wgmma_ss m64n80, wgmma_rs m64n256, fp16", loaded_products_are_exact<__half, 80, 256>}};
  const bool has_wgmma = wgmma_checks().size() > 1;
  return has_wgmma ? std::span<const NamedCheck>(kChecks) : std::span<const NamedCheck>{};
}

}  // namespace fovea::cuda

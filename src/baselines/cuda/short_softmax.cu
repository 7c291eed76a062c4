// The softmax of short rows, a warp each. A row waits for memory most of its time, hence many warps of few registers;
// what bounds the pass then are instructions, hence code for each number of blocks of columns with keys.
#include "baselines/cuda/short_softmax.h"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/arithmetic.cuh"
#include "cuda/ptx/grid_dependency.cuh"

namespace fovea::cuda::baselines {
namespace {

constexpr int kBlock = 128;  // columns of a warp's vectors
constexpr int kBlocks = kShortRow / kBlock;
constexpr int kAtOnce = 12;  // blocks of threads: 48 warps on a multiprocessor

// A row, from the thread's first column on.
template <class Element>
struct ShortRow {
  const float* scores;
  Element* to;
  float* lse;
  int seen;    // columns with keys
  int length;  // columns

  __device__ __forceinline__ ShortRow(const ShortSoftmax& p, unsigned row, int thread) {
    const unsigned sequence = quotient(row, p.by_len_q), query = row - sequence * p.len_q;
    const auto start = [&](const ShortMatrix& m) {
      return std::uint64_t{sequence} * m.head + std::uint64_t{query} * m.row;
    };
    const int first = 4 * thread, in_head = static_cast<int>(query);
    scores = static_cast<const float*>(p.scores.data) + start(p.scores) + first;
    to = static_cast<Element*>(p.to.data) + start(p.to) + first;
    lse = p.lse.data == nullptr ? nullptr : static_cast<float*>(p.lse.data) + start(p.lse);
    seen = min(p.len_k, in_head + p.window_end) - first;
    length = p.len_k - first;
  }
};

template <class Combine>
__device__ __forceinline__ float over_warp(const float (&of_columns)[4], Combine combine) {
  float value = combine(combine(of_columns[0], of_columns[1]), combine(of_columns[2], of_columns[3]));
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}

// The first kLive blocks' scores; those behind the row's last key are -infinity. They leave the L2 cache first: the
// probabilities stay there for the next product.
template <int kLive, class Element>
__device__ __forceinline__ void load(float (&values)[kLive][4], const ShortRow<Element>& row, float sign) {
#pragma unroll
  for (int block = 0; block < kLive; ++block) {
    if (block + 1 < kLive || block * kBlock < row.seen)
      *reinterpret_cast<float4*>(values[block]) = __ldcs(reinterpret_cast<const float4*>(row.scores + block * kBlock));
  }
  if (sign < 0.0f) {
#pragma unroll
    for (auto& block : values)
#pragma unroll
      for (float& value : block) value = -value;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float& last = values[kLive - 1][i];
    last = (kLive - 1) * kBlock + i < row.seen ? last : -kInfinity;
  }
}

// Zeros behind the keys.
template <int kLive, class Element>
__device__ __forceinline__ void store(const float (&values)[kLive][4], const ShortRow<Element>& row, float factor) {
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    if (block * kBlock >= row.length) break;
    uint2 four{0, 0};
    if (block < kLive) {
      const float* const v = values[block];
      four = {ptx::pack<Element>(v[0] * factor, v[1] * factor), ptx::pack<Element>(v[2] * factor, v[3] * factor)};
    }
    *reinterpret_cast<uint2*>(row.to + block * kBlock) = four;
  }
}

// A row without keys comes here with one block of which it sees nothing. The difference is taken before it is scaled:
// the largest weight is then exactly 1, and a sum that is not 0 from 1 to kShortRow.
template <int kLive, class Element>
__device__ __forceinline__ void softmax(const ShortSoftmax& p, const ShortRow<Element>& row, int thread) {
  alignas(16) float values[kLive][4];
  load(values, row, p.sign);
  float most[4] = {-kInfinity, -kInfinity, -kInfinity, -kInfinity}, sums[4]{};
#pragma unroll
  for (const auto& block : values)
#pragma unroll
    for (int i = 0; i < 4; ++i) most[i] = fmaxf(most[i], block[i]);
  const float reference = reference_of(over_warp(most, [](float a, float b) { return fmaxf(a, b); }));
  const float scale = p.magnitude * kLog2e;
#pragma unroll
  for (auto& block : values)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] += block[i] = ptx::exp2_approx((block[i] - reference) * scale);
  const float sum = over_warp(sums, [](float a, float b) { return a + b; });
  store(values, row, sum == 0.0f ? 0.0f : __fdividef(1.0f, sum));
  if (row.lse != nullptr && thread == 0) *row.lse = sum == 0.0f ? -kInfinity : fmaf(reference, p.magnitude, logf(sum));
}

template <class Element>
__global__ void __launch_bounds__(kShortRowThreads, kAtOnce) short_softmax(const __grid_constant__ ShortSoftmax p) {
  ptx::wait_for_earlier_kernels();
  const unsigned index = blockIdx.x * (kShortRowThreads / 32) + threadIdx.x / 32;
  if (index >= p.rows) return;
  const int thread = static_cast<int>(threadIdx.x % 32);
  const ShortRow<Element> row(p, index, thread);
  const int seen = row.seen + 4 * thread;  // of the whole row
  if (seen <= kBlock) return softmax<1>(p, row, thread);
  if (seen <= 2 * kBlock) return softmax<2>(p, row, thread);
  if (seen <= 3 * kBlock) return softmax<3>(p, row, thread);
  return softmax<kBlocks>(p, row, thread);
}

}  // namespace

const void* short_softmax_kernel(ElementKind to) {
  return to == ElementKind::bf16 ? reinterpret_cast<const void*>(&short_softmax<__nv_bfloat16>)
                                 : reinterpret_cast<const void*>(&short_softmax<__half>);
}

}  // namespace fovea::cuda::baselines

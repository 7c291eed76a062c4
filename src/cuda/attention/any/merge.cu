// Joining the parts of a split along the streamed side, in the order of the parts: the same sum on every run.
#include "cuda/attention/any/parameters.h"
#include "cuda/attention/any/parts.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/device/store.cuh"
#include "cuda/ptx/grid_dependency.cuh"

namespace fovea::cuda::any {
namespace {

constexpr int kVector = 4;            // columns of a thread
constexpr int kTogether = 4;          // parts that a thread of sum_partials reads at once
static_assert(kMaxSplits <= 2 * 32);  // merge_forward: a lane of a warp weighs two parts at most

// Threads of a row: each makes kVector columns of each step of 32 threads or, for narrow rows, of fewer.
__device__ __forceinline__ int threads_of_row(int dim) {
  int threads = 1;
  while (threads < 32 && threads * kVector < dim) threads *= 2;
  return threads;
}

__device__ __forceinline__ void read_partial(float (&values)[kVector], const float* row, int column, int dim) {
  if (dim % kVector == 0) {
    *reinterpret_cast<float4*>(values) = *reinterpret_cast<const float4*>(row + column);
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) values[i] = column + i < dim ? row[column + i] : 0.0f;
  }
}

// A warp joins the parts of a row: a lane weighs one or two of them, then groups of lanes add every n-th part.
template <class Element>
__global__ void __launch_bounds__(kMemoryKernelThreads)
    merge_forward(const __grid_constant__ MergeForwardParameters p) {
  ptx::wait_for_earlier_kernels();
  const Shape& s = p.shape;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t rows = static_cast<std::int64_t>(s.batch) * s.heads_q * s.len_q;
  const std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * kMemoryKernelThreads + threadIdx.x) / 32;
  if (row >= rows) return;
  const std::int64_t query = row % s.len_q, sequence = row / s.len_q;
  const int parts = parts_of_query(s, p.split, static_cast<int>(query));
  PartialState states[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int part = lane + 32 * i;
    states[i] = part < parts ? p.partial_state[part * rows + row] : PartialState{-kInfinity, 0.0f};
  }
  const float maximum = lanes_max<32>(fmaxf(states[0].maximum, states[1].maximum));
  const float reference = reference_of(maximum);
  float weights[2], sum = 0.0f;
  unsigned written[2];  // nothing is, for a part without keys
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    written[i] = __ballot_sync(0xffffffffu, states[i].sum != 0.0f);
    weights[i] = AccurateWeights::weight(states[i].maximum - reference, s);
    sum = fmaf(weights[i], states[i].sum, sum);
  }
  const Finished done = finish(maximum, lanes_sum<32>(sum), s);
  const auto offset = [&](const TensorRef& t) {
    return sequence / s.heads_q * t.batch + sequence % s.heads_q * t.head + query * t.row;
  };
  if (lane == 0 && p.lse.data != nullptr) static_cast<float*>(p.lse.data)[offset(p.lse)] = done.lse;
  const int width = threads_of_row(s.dim_v), group = lane / width, groups = 32 / width;
  for (int first = 0; first < s.dim_v; first += width * kVector) {
    const int column = first + lane % width * kVector;
    float result[kVector] = {};
#pragma unroll 4
    for (int i = 0; i < parts; i += groups) {
      const int part = i + group, half = i / 32;
      const float weight = __shfl_sync(0xffffffffu, half == 0 ? weights[0] : weights[1], part % 32);
      float values[kVector] = {};
      if (column < s.dim_v && ((half == 0 ? written[0] : written[1]) >> part % 32 & 1) != 0)
        read_partial(values, p.partial_out + (part * rows + row) * s.dim_v, column, s.dim_v);
#pragma unroll
      for (int j = 0; j < kVector; ++j) result[j] = fmaf(weight, values[j], result[j]);
    }
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      for (int step = width; step < 32; step *= 2) result[j] += __shfl_xor_sync(0xffffffffu, result[j], step);
      result[j] *= done.factor;
    }
    if (group == 0 && column < s.dim_v) store<Element, kVector>(p.out, offset(p.out), column, s.dim_v, false, result);
  }
}

template <class Element>
__global__ void __launch_bounds__(kMemoryKernelThreads) sum_partials(const __grid_constant__ SumPartialsParameters p) {
  ptx::let_next_kernel_begin();
  ptx::wait_for_earlier_kernels();
  const unsigned block = blockIdx.x;
  const int last = p.count - 1;
  const PartialSum& sum = p.sums[block >= p.sums[last].first_block ? last : block >= p.sums[1].first_block ? 1 : 0];
  const int threads = threads_of_row(sum.dim), lane = static_cast<int>(threadIdx.x) % threads;
  const std::int64_t rows = static_cast<std::int64_t>(p.shape.batch) * sum.heads * sum.len;
  const std::int64_t thread = static_cast<std::int64_t>(block - sum.first_block) * kMemoryKernelThreads + threadIdx.x;
  const std::int64_t row = thread / threads;
  if (row >= rows) return;
  const std::int64_t index = row % sum.len, sequence = row / sum.len;
  const std::int64_t offset =
      sequence / sum.heads * sum.result.batch + sequence % sum.heads * sum.result.head + index * sum.result.row;
  const int parts = sum.of_keys ? parts_of_key(p.shape, sum.split, static_cast<int>(index))
                                : parts_of_query(p.shape, sum.split, static_cast<int>(index));
  for (int column = lane * kVector; column < sum.dim; column += threads * kVector) {
    float result[kVector] = {};
    for (int first = 0; first < parts; first += kTogether) {
      float values[kTogether][kVector] = {};
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (first + i < parts)
          read_partial(values[i], sum.partial + ((first + i) * rows + row) * sum.dim, column, sum.dim);
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
#pragma unroll
        for (int j = 0; j < kVector; ++j) result[j] += values[i][j];
      }
    }
    store<Element, kVector>(sum.result, offset, column, sum.dim, p.accumulate, result);
  }
}

}  // namespace

const void* merge_forward_function(ElementKind kind) {
  switch (kind) {
    case ElementKind::fp32:
      return reinterpret_cast<const void*>(&merge_forward<float>);
    case ElementKind::bf16:
      return reinterpret_cast<const void*>(&merge_forward<__nv_bfloat16>);
    case ElementKind::fp16:
      return reinterpret_cast<const void*>(&merge_forward<__half>);
  }
  return nullptr;
}

const void* sum_partials_function(ElementKind kind) {
  switch (kind) {
    case ElementKind::fp32:
      return reinterpret_cast<const void*>(&sum_partials<float>);
    case ElementKind::bf16:
      return reinterpret_cast<const void*>(&sum_partials<__nv_bfloat16>);
    case ElementKind::fp16:
      return reinterpret_cast<const void*>(&sum_partials<__half>);
  }
  return nullptr;
}

}  // namespace fovea::cuda::any

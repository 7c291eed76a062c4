// Backward preprocess: lse and delta = rowsum(dO * O) of every query row, which both gradient kernels read.
// Delta is summed as dP = dO V^T is: in 16 bits by MMAs over the same columns in the same order, in fp32 by the same
// FMAs.
#include "cuda/attention/any/parameters.h"
#include "cuda/device/row_delta.cuh"
#include "cuda/device/sequence.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/grid_dependency.cuh"

namespace fovea::cuda::any {
namespace {

// Writes lse and delta of one row. A delta tensor of the caller overrides `delta`.
__device__ __forceinline__ void write_row(const PreprocessParameters& p, std::int64_t sequence, int query,
                                          float delta) {
  const Shape& s = p.shape;
  const std::int64_t batch = sequence / s.heads_q, head = sequence % s.heads_q, row = sequence * s.len_q + query;
  const auto at = [&](const ConstTensorRef& t) {
    return static_cast<const float*>(t.data)[row_offset(t, batch, head, query)];
  };
  const float lse = at(p.lse);
  p.lse_result[row] = lse == -kInfinity ? kInfinity : lse;
  p.delta_result[row] = p.delta.data != nullptr ? at(p.delta) : delta;
}

// fp32: one thread per row, in the order of fma_policy.cuh.
__global__ void __launch_bounds__(kPreprocessThreads)
    backward_preprocess_fp32(const __grid_constant__ PreprocessParameters p) {
  ptx::griddepcontrol_launch_dependents();
  const Shape& s = p.shape;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kPreprocessThreads + threadIdx.x;
  const std::int64_t sequence = row / s.len_q;
  if (sequence >= static_cast<std::int64_t>(s.batch) * s.heads_q) return;
  const int query = static_cast<int>(row % s.len_q);
  const auto row_of = [&](const ConstTensorRef& t) {
    return static_cast<const float*>(t.data) + row_offset(t, sequence / s.heads_q, sequence % s.heads_q, query);
  };
  float delta = 0.0f;
  if (p.delta.data == nullptr) {
    const float *out = row_of(p.out), *dout = row_of(p.dout);
    int column = 0;
    if (p.out.aligned && p.dout.aligned) {
#pragma unroll 16  // few threads, so many loads in flight
      for (; column + 4 <= s.dim_v; column += 4) {
        const float4 a = *reinterpret_cast<const float4*>(out + column);
        const float4 b = *reinterpret_cast<const float4*>(dout + column);
        delta = fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, delta))));
      }
    }
    for (; column < s.dim_v; ++column) delta = fmaf(out[column], dout[column], delta);
  }
  write_row(p, sequence, query, delta);
}

// 16-bit: one warp per 16 rows; delta is the diagonal of dO O^T.
template <class Element>
__global__ void __launch_bounds__(kPreprocessThreads)
    backward_preprocess(const __grid_constant__ PreprocessParameters p) {
  ptx::griddepcontrol_launch_dependents();
  const Shape& s = p.shape;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;  // as in ptx/mma.cuh
  const int tiles = (s.len_q + 15) / 16;
  const std::int64_t warp = (static_cast<std::int64_t>(blockIdx.x) * kPreprocessThreads + threadIdx.x) / 32;
  const std::int64_t sequence = warp / tiles;
  if (sequence >= static_cast<std::int64_t>(s.batch) * s.heads_q) return;
  const int first = static_cast<int>(warp % tiles) * 16;
  float2 deltas = {0.0f, 0.0f};
  __shared__ DeltaStage stages[kPreprocessThreads / 32];
  if (p.delta.data == nullptr)
    deltas = row_deltas<Element>(stages[threadIdx.x / 32], p.out, p.dout,
                                 {sequence / s.heads_q, sequence % s.heads_q, first, s.len_q, s.dim_v});
  if (t != g / 2) return;  // column g of row g is in the lane of columns 2t and 2t + 1
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int query = first + g + 8 * i;
    if (query < s.len_q) write_row(p, sequence, query, i == 0 ? deltas.x : deltas.y);
  }
}

}  // namespace

const void* preprocess_function(ElementKind kind) {
  return by_kind(kind, reinterpret_cast<const void*>(&backward_preprocess_fp32),
                 reinterpret_cast<const void*>(&backward_preprocess<__nv_bfloat16>),
                 reinterpret_cast<const void*>(&backward_preprocess<__half>));
}

std::int64_t preprocess_ctas(ElementKind kind, std::int64_t sequences, std::int64_t len_q) {
  const std::int64_t threads = kind == ElementKind::fp32 ? sequences * len_q : sequences * ((len_q + 15) / 16) * 32;
  return (threads + kPreprocessThreads - 1) / kPreprocessThreads;
}

}  // namespace fovea::cuda::any

// Backward preprocess: lse and delta = rowsum(dO * O) of every query row, which both gradient kernels read.
// Delta is summed by the same instructions in the same order as dP = dO V^T. For a row that sees one key, O is that
// key's V, so dP - delta must be exactly 0.
#include "cuda/attention/any/parameters.h"
#include "cuda/device/mma_sync_policy.cuh"
#include "cuda/device/sequence.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/arithmetic.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/mma.cuh"

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

// Elements `column` and `column + 1` of a row as one MMA operand register; 0 from `dim` on.
template <class Element>
__device__ __forceinline__ std::uint32_t operand(const Element* row, int column, int dim, bool aligned) {
  if (row == nullptr || column >= dim) return 0;
  if (aligned && column + 2 <= dim) return *reinterpret_cast<const std::uint32_t*>(row + column);
  const float second = column + 1 < dim ? static_cast<float>(row[column + 1]) : 0.0f;
  return ptx::pack<Element>(static_cast<float>(row[column]), second);
}

// The same elements of an fp32 row, split into two operands: high + low.
template <class Element>
__device__ __forceinline__ void split_operand(const float* row, int column, int dim, std::uint32_t& high,
                                              std::uint32_t& low) {
  const float a = row != nullptr && column < dim ? row[column] : 0.0f;
  const float b = row != nullptr && column + 1 < dim ? row[column + 1] : 0.0f;
  high = ptx::pack<Element>(a, b);
  const auto rounded = [](float value) { return static_cast<float>(Element(value)); };
  low = ptx::pack<Element>(a - rounded(a), b - rounded(b));
}

// The rows that a lane reads: one of the upper and one of the lower eight rows of a tile; null beyond the last query.
template <class Element>
struct LaneRows {
  const Element *dout[2], *out[2];
  const float* out_fp32[2];
};

// Accumulators of dO O^T for the upper and for the lower eight rows; delta is on their diagonals.
struct Diagonals {
  float upper[4] = {}, lower[4] = {};
};

// Adds 16 columns, of which this lane reads `column`, `column + 1`, `column + 8` and `column + 9`.
template <class Element>
__device__ __forceinline__ void add_columns(Diagonals& sums, const PreprocessParameters& p,
                                            const LaneRows<Element>& rows, int column) {
  const int dim = p.shape.dim_v;
  const bool is_fp32 = p.out.kind == ElementKind::fp32;
  std::uint32_t a[4], b[4], low[4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int at = column + i / 2 * 8;
    a[i] = operand(rows.dout[i % 2], at, dim, p.dout.aligned);
    if (is_fp32) {
      split_operand<Element>(rows.out_fp32[i % 2], at, dim, b[i], low[i]);
    } else {
      b[i] = operand(rows.out[i % 2], at, dim, p.out.aligned);
    }
  }
  float(&upper)[4] = sums.upper, (&lower)[4] = sums.lower;
  ptx::mma_m16n8k16<Element>(upper[0], upper[1], upper[2], upper[3], a, b[0], b[2]);
  ptx::mma_m16n8k16<Element>(lower[0], lower[1], lower[2], lower[3], a, b[1], b[3]);
  if (is_fp32) {
    ptx::mma_m16n8k16<Element>(upper[0], upper[1], upper[2], upper[3], a, low[0], low[2]);
    ptx::mma_m16n8k16<Element>(lower[0], lower[1], lower[2], lower[3], a, low[1], low[3]);
  }
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
  const auto row_of = [&](const ConstTensorRef& t, auto* data, int query) {
    return query < s.len_q ? data + row_offset(t, sequence / s.heads_q, sequence % s.heads_q, query) : nullptr;
  };
  Diagonals sums, first_chain;
  if (p.delta.data == nullptr) {
    LaneRows<Element> rows;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      rows.dout[i] = row_of(p.dout, static_cast<const Element*>(p.dout.data), first + g + 8 * i);
      rows.out[i] = row_of(p.out, static_cast<const Element*>(p.out.data), first + g + 8 * i);
      rows.out_fp32[i] = row_of(p.out, static_cast<const float*>(p.out.data), first + g + 8 * i);
    }
#pragma unroll 1
    for (int column = 2 * t; column < s.dim_v + 2 * t; column += 16) {
      if (column == kMaxChain + 2 * t) first_chain = sums, sums = {};
      add_columns(sums, p, rows, column);
    }
  }
  if (t != g / 2) return;  // column g of row g is in the lane of columns 2t and 2t + 1
  const float deltas[2] = {g % 2 == 0 ? first_chain.upper[0] + sums.upper[0] : first_chain.upper[1] + sums.upper[1],
                           g % 2 == 0 ? first_chain.lower[2] + sums.lower[2] : first_chain.lower[3] + sums.lower[3]};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int query = first + g + 8 * i;
    if (query < s.len_q) write_row(p, sequence, query, deltas[i]);
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

// Delta of 16 query rows, as tensor cores sum it: delta = rowsum(dO * O) is the diagonal of dO O^T. It is summed by
// MMAs of 16 columns in the same order as dP = dO V^T (mma.sync here, mma.sync or wgmma there). For a row that sees one
// key, O is that key's V, and dP - delta must be exactly 0.
#pragma once

#include <type_traits>

#include "cuda/device/mma_sync_policy.cuh"
#include "cuda/device/sequence.cuh"
#include "cuda/ptx/arithmetic.cuh"
#include "cuda/ptx/mma.cuh"

namespace fovea::cuda {

// Elements `column` and `column + 1` of a row as one MMA operand register; 0 from `dim` on.
template <class Element>
__device__ __forceinline__ std::uint32_t operand(const Element* row, int column, int dim, bool aligned) {
  if (column >= dim) return 0;
  if (aligned && column + 2 <= dim) return *reinterpret_cast<const std::uint32_t*>(row + column);
  const float second = column + 1 < dim ? static_cast<float>(row[column + 1]) : 0.0f;
  return ptx::pack<Element>(static_cast<float>(row[column]), second);
}

// What is left of an fp32 number after rounding to fp16 may be below fp16's smallest number, 2^-24. Times 2^11 it is not
// lost, nor is it too large: it is at most 16 where the number is at most 65504.
template <class Element>
constexpr float kLowScale = std::is_same_v<Element, __half> ? 2048.0f : 1.0f;

// The same elements of an fp32 row, split into two operands: high + low / kLowScale.
template <class Element>
__device__ __forceinline__ void split_operand(const float* row, int column, int dim, std::uint32_t& high,
                                              std::uint32_t& low) {
  const float a = column < dim ? row[column] : 0.0f;
  const float b = column + 1 < dim ? row[column + 1] : 0.0f;
  high = ptx::pack<Element>(a, b);
  const auto rest = [](float value) { return (value - static_cast<float>(Element(value))) * kLowScale<Element>; };
  low = ptx::pack<Element>(rest(a), rest(b));
}

// The rows that a lane reads: one of the upper and one of the lower eight rows of a tile. For rows beyond the last
// query it reads the last one.
template <class Element>
struct LaneRows {
  const Element *dout[2], *out[2];
  const float* out_fp32[2];
};

// Accumulators of dO O^T for the upper and for the lower eight rows; delta is on their diagonals.
struct Diagonals {
  float upper[4] = {}, lower[4] = {};
};

// Adds the products of 16 columns.
template <class Element>
__device__ __forceinline__ void add_products(Diagonals& sums, const std::uint32_t (&dout)[4],
                                             const std::uint32_t (&out)[4]) {
  float(&upper)[4] = sums.upper, (&lower)[4] = sums.lower;
  ptx::mma_m16n8k16<Element>(upper[0], upper[1], upper[2], upper[3], dout, out[0], out[2]);
  ptx::mma_m16n8k16<Element>(lower[0], lower[1], lower[2], lower[3], dout, out[1], out[3]);
}

// Adds 16 columns, of which this lane reads `column`, `column + 1`, `column + 8` and `column + 9`.
template <class Element>
__device__ __forceinline__ void add_columns(Diagonals& sums, Diagonals& low_sums, const ConstTensorRef& out,
                                            const ConstTensorRef& dout, const LaneRows<Element>& rows, int column,
                                            int dim) {
  const bool is_fp32 = out.kind == ElementKind::fp32;
  std::uint32_t a[4], b[4], low[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int at = column + i / 2 * 8;
    a[i] = operand(rows.dout[i % 2], at, dim, dout.aligned);
    if (is_fp32) {
      split_operand<Element>(rows.out_fp32[i % 2], at, dim, b[i], low[i]);
    } else {
      b[i] = operand(rows.out[i % 2], at, dim, out.aligned);
    }
  }
  add_products<Element>(sums, a, b);
  if (is_fp32) add_products<Element>(low_sums, a, low);
}

// The same for whole chunks of aligned 16-bit elements. Its loads have no conditions, so many of them are in flight.
template <class Element>
__device__ __forceinline__ void add_whole_columns(Diagonals& sums, const LaneRows<Element>& rows, int column) {
  std::uint32_t a[4], b[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    a[i] = *reinterpret_cast<const std::uint32_t*>(rows.dout[i % 2] + column + i / 2 * 8);
    b[i] = *reinterpret_cast<const std::uint32_t*>(rows.out[i % 2] + column + i / 2 * 8);
  }
  add_products<Element>(sums, a, b);
}

// The 16 rows of one (batch, head) from `first` on; `len` rows exist.
struct DeltaRows {
  std::int64_t batch, head;
  int first, len, dim;
};

// One warp. The deltas of rows g and g + 8, in the lanes with t = g / 2, where g = lane / 4 and t = lane % 4. The sum
// restarts once, after kChain columns, as dP's does. The deltas of rows from `len` on mean nothing.
template <class Element, int kChain = kMaxChain>
__device__ __forceinline__ float2 row_deltas(const ConstTensorRef& out, const ConstTensorRef& dout,
                                             const DeltaRows& of) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;  // as in ptx/mma.cuh
  LaneRows<Element> rows;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int query = min(of.first + g + 8 * i, of.len - 1);
    const std::int64_t in_out = row_offset(out, of.batch, of.head, query);
    rows.dout[i] = static_cast<const Element*>(dout.data) + row_offset(dout, of.batch, of.head, query);
    rows.out[i] = static_cast<const Element*>(out.data) + in_out;
    rows.out_fp32[i] = static_cast<const float*>(out.data) + in_out;
  }
  Diagonals sums, first_chain, low_sums;
  const auto restart_at = [&](int column) {
    if (column == kChain + 2 * t) first_chain = sums, sums = {};
  };
  if (out.kind != ElementKind::fp32 && out.aligned && dout.aligned && of.dim % 16 == 0) {
#pragma unroll 4
    for (int column = 2 * t; column < of.dim; column += 16) {
      restart_at(column);
      add_whole_columns(sums, rows, column);
    }
  } else {
#pragma unroll 1
    for (int column = 2 * t; column < of.dim + 2 * t; column += 16) {
      restart_at(column);
      add_columns(sums, low_sums, out, dout, rows, column, of.dim);
    }
  }
  const auto total = [&](float first, float second, float low) { return first + second + low / kLowScale<Element>; };
  if (g % 2 == 0) {
    return {total(first_chain.upper[0], sums.upper[0], low_sums.upper[0]),
            total(first_chain.lower[2], sums.lower[2], low_sums.lower[2])};
  }
  return {total(first_chain.upper[1], sums.upper[1], low_sums.upper[1]),
          total(first_chain.lower[3], sums.lower[3], low_sums.lower[3])};
}

}  // namespace fovea::cuda

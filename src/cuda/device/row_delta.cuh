// Delta of 16 query rows, as tensor cores sum it: delta = rowsum(dO * O) is the diagonal of dO O^T. It is summed by
// MMAs of 16 columns in the same order as dP = dO V^T (mma.sync here, mma.sync or wgmma there). For a row that sees one
// key, O is that key's V, and dP - delta must be exactly 0.
#pragma once

#include <type_traits>

#include "cuda/device/mma_sync_policy.cuh"
#include "cuda/device/sequence.cuh"
#include "cuda/ptx/arithmetic.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/ldmatrix.cuh"
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

// What is left of an fp32 number after rounding to fp16 may be below fp16's smallest number, 2^-24. Times 2^11 it is
// not lost, nor is it too large: it is at most 16 where the number is at most 65504.
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

// 16 rows of dO and of O, up to 128 columns, in a warp's shared memory. Chunk c of row r, which has 16 bytes, lies at
// c ^ (r % 8): the eight rows that ldmatrix reads at once are then in different banks.
struct DeltaStage {
  static constexpr int kRows = 16, kChunks = 16, kColumns = 8 * kChunks;
  uint4 dout[kRows * kChunks], out[kRows * kChunks];

  static __device__ __forceinline__ int place(int row, int chunk) { return row * kChunks + (chunk ^ (row % 8)); }
};

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

// The 16 rows of one (batch, head) from `first` on; `len` rows exist.
struct DeltaRows {
  std::int64_t batch, head;
  int first, len, dim;
};

// Copies `columns` columns from `column` on of aligned 16-bit rows. A warp copies two rows at a time, whole lines of
// memory, and waits for nothing.
template <class Element>
__device__ __forceinline__ void stage_rows(uint4* to, const ConstTensorRef& from, const DeltaRows& of, int column,
                                           int columns) {
  const int lane = static_cast<int>(threadIdx.x) % 32, chunk = lane % DeltaStage::kChunks;
  if (8 * chunk >= columns) return;
  const auto* data = static_cast<const Element*>(from.data) + column + 8 * chunk;
#pragma unroll
  for (int i = 0; i < DeltaStage::kRows; i += 2) {
    const int row = i + lane / DeltaStage::kChunks, query = min(of.first + row, of.len - 1);
    ptx::cp_async_16(shared_address(to + DeltaStage::place(row, chunk)),
                     data + row_offset(from, of.batch, of.head, query), 16);
  }
}

// Adds 16 columns that are staged.
template <class Element>
__device__ __forceinline__ void add_staged_columns(Diagonals& sums, const DeltaStage& stage, int column) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int at = DeltaStage::place(lane % 16, column / 8 + lane / 16);
  std::uint32_t a[4], b[4];
  ptx::ldmatrix_x4(a, shared_address(stage.dout + at));
  ptx::ldmatrix_x4(b, shared_address(stage.out + at));
  add_products<Element>(sums, a, b);
}

// One warp. The deltas of rows g and g + 8, in the lanes with t = g / 2, where g = lane / 4 and t = lane % 4. The sum
// restarts once, after kChain columns, as dP's does. The deltas of rows from `len` on mean nothing. `stage` is the
// warp's own.
template <class Element, int kChain = kMaxChain>
__device__ __forceinline__ float2 row_deltas(DeltaStage& stage, const ConstTensorRef& out, const ConstTensorRef& dout,
                                             const DeltaRows& of) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;  // as in ptx/mma.cuh
  Diagonals sums, first_chain, low_sums;
  const auto restart_at = [&](int column) {
    if (column == kChain) first_chain = sums, sums = {};
  };
  if (out.kind != ElementKind::fp32 && out.aligned && dout.aligned && of.dim % 16 == 0) {
#pragma unroll 1
    for (int panel = 0; panel < of.dim; panel += DeltaStage::kColumns) {
      const int columns = min(of.dim - panel, DeltaStage::kColumns);
      __syncwarp();  // all lanes have read the panel before
      stage_rows<Element>(stage.dout, dout, of, panel, columns);
      stage_rows<Element>(stage.out, out, of, panel, columns);
      ptx::cp_async_commit();
      ptx::cp_async_wait<0>();
      __syncwarp();
#pragma unroll 4
      for (int column = 0; column < columns; column += 16) {
        restart_at(panel + column);
        add_staged_columns<Element>(sums, stage, column);
      }
    }
  } else {
    LaneRows<Element> rows;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int query = min(of.first + g + 8 * i, of.len - 1);
      const std::int64_t in_out = row_offset(out, of.batch, of.head, query);
      rows.dout[i] = static_cast<const Element*>(dout.data) + row_offset(dout, of.batch, of.head, query);
      rows.out[i] = static_cast<const Element*>(out.data) + in_out;
      rows.out_fp32[i] = static_cast<const float*>(out.data) + in_out;
    }
#pragma unroll 1
    for (int column = 0; column < of.dim; column += 16) {
      restart_at(column);
      add_columns(sums, low_sums, out, dout, rows, column + 2 * t, of.dim);
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

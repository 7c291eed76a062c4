// Ahead of backward: lse * log2(e) and delta of every query row, up to the end of the last query tile. Clears the
// counters of turns, and writes zeros to dQ of query tiles that no key tile visits.
#pragma once

#include "cuda/attention/sm90/backward_parameters.h"
#include "cuda/device/mask.cuh"
#include "cuda/device/row_delta.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/device/store.cuh"
#include "cuda/ptx/grid_dependency.cuh"

namespace fovea::cuda::sm90 {

// One row of dQ; `lane` is one of four.
template <class Element>
__device__ __forceinline__ void write_zero_row(const TensorRef& dq, std::int64_t offset, int dim, int lane) {
  const float zeros[2] = {0.0f, 0.0f};
#pragma unroll 1
  for (int column = 2 * lane; column < dim; column += 8) store<Element, 2>(dq, offset, column, dim, false, zeros);
}

// One warp per 16 rows. kChain: columns that the kernel's dP sums in one chain.
template <class Element, int kChain = kMaxChain>
__global__ void __launch_bounds__(kPreprocessThreads)
    backward_preprocess(const __grid_constant__ BackwardPreprocessParameters p) {
  ptx::griddepcontrol_launch_dependents();
  const Shape& s = p.shape;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;  // as in row_delta.cuh
  const std::int64_t rows = static_cast<std::int64_t>(p.query_tiles) * p.queries;   // of a sequence
  const std::int64_t first_row = (static_cast<std::int64_t>(blockIdx.x) * kPreprocessThreads + threadIdx.x) / 32 * 16;
  const std::int64_t sequence = first_row / rows;
  if (sequence >= static_cast<std::int64_t>(s.batch) * s.heads_q) return;
  const int first = static_cast<int>(first_row - sequence * rows), tile = first / p.queries;
  const std::int64_t batch = sequence / s.heads_q, head = sequence % s.heads_q;
  if (p.turns != nullptr && first % p.queries == 0 && lane < kKeyWarpgroups)
    p.turns[(sequence * p.query_tiles + tile) * kKeyWarpgroups + lane] = 0;
  if (p.dq.data != nullptr) {
    const Range keys = keys_of_any(s, tile * p.queries, min((tile + 1) * p.queries, s.len_q) - 1);
    for (int query = first + g; keys.begin >= keys.end && query < min(first + 16, s.len_q); query += 8)
      write_zero_row<Element>(p.dq, row_offset(p.dq, batch, head, query), s.dim_qk, t);
  }
  float2 deltas = {0.0f, 0.0f};
  __shared__ DeltaStage stages[kPreprocessThreads / 32];
  if (p.delta.data == nullptr)
    deltas =
        row_deltas<Element, kChain>(stages[threadIdx.x / 32], p.out, p.dout, {batch, head, first, s.len_q, s.dim_v});
  if (t != g / 2) return;  // these lanes hold the deltas of rows g and g + 8
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int query = first + g + 8 * i;
    float lse = kInfinity, delta = 0.0f;
    if (query < s.len_q) {
      const auto at = [&](const ConstTensorRef& of) {
        return static_cast<const float*>(of.data)[row_offset(of, batch, head, query)];
      };
      const float natural = at(p.lse);
      if (natural != -kInfinity) lse = natural * kLog2e;
      delta = p.delta.data != nullptr ? at(p.delta) : i == 0 ? deltas.x : deltas.y;
    }
    p.lse_result[first_row + g + 8 * i] = lse;
    p.delta_result[first_row + g + 8 * i] = delta;
  }
}

}  // namespace fovea::cuda::sm90

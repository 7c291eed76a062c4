// The memory-bound kernels around the sm_90 backward kernel: delta and scaled lse ahead of it, rounding dQ after it.
#pragma once

#include "cuda/attention/sm90/backward_parameters.cuh"
#include "cuda/device/sequence.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/arithmetic.cuh"
#include "cuda/ptx/grid_dependency.cuh"

namespace fovea::cuda::sm90 {

struct AroundParameters {
  Shape shape;
  ConstTensorRef out, dout, lse;
  TensorRef dq;
  float* scaled_lse = nullptr;  // the fields of BackwardParameters
  float* delta = nullptr;
  float* dq_sum = nullptr;
  unsigned* turns = nullptr;
  int query_tiles = 0;
};

constexpr int kAroundThreads = 128;

// The sum of the products of eight pairs of elements.
template <class Element>
__device__ __forceinline__ float dot8(const uint4& a, const uint4& b) {
  const auto* x = reinterpret_cast<const Element*>(&a);
  const auto* y = reinterpret_cast<const Element*>(&b);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum = fmaf(static_cast<float>(x[i]), static_cast<float>(y[i]), sum);
  return sum;
}

// lse * log2(e) and delta = rowsum(dO O) of every query row, up to the end of the last tile; clears the turns. A row has
// kDim / 8 lanes.
template <class Tile>
__global__ void __launch_bounds__(kAroundThreads) backward_preprocess(const __grid_constant__ AroundParameters p) {
  using Element = typename Tile::Element;
  constexpr int kLanes = Tile::kDim / 8;
  ptx::griddepcontrol_launch_dependents();
  const Shape& s = p.shape;
  const std::int64_t rows = static_cast<std::int64_t>(p.query_tiles) * Tile::kQueries,
                     row = (static_cast<std::int64_t>(blockIdx.x) * kAroundThreads + threadIdx.x) / kLanes,
                     sequence = row / rows;
  if (sequence >= static_cast<std::int64_t>(s.batch) * s.heads_q) return;
  const int query = static_cast<int>(row % rows), lane = static_cast<int>(threadIdx.x) % kLanes;
  const bool exists = query < s.len_q;
  const std::int64_t batch = sequence / s.heads_q, head = sequence % s.heads_q;
  float delta = 0.0f;
  if (exists) {
    const auto at = [&](const ConstTensorRef& t) {
      return *reinterpret_cast<const uint4*>(static_cast<const Element*>(t.data) +
                                             row_offset(t, batch, head, query) + lane * 8);
    };
    delta = dot8<Element>(at(p.out), at(p.dout));
  }
  if (Tile::kFinishes && exists) {
    const int first = query / Tile::kQueries * Tile::kQueries;
    const Range keys = keys_of_any(s, first, min(first + Tile::kQueries, s.len_q) - 1);
    if (keys.begin >= keys.end)
      *reinterpret_cast<uint4*>(static_cast<Element*>(p.dq.data) + row_offset(p.dq, batch, head, query) + lane * 8) =
          uint4{0, 0, 0, 0};
  }
  delta = lanes_sum<kLanes>(delta);
  if (lane != 0) return;
  float lse = kInfinity;
  if (exists) {
    const float natural = static_cast<const float*>(p.lse.data)[row_offset(p.lse, batch, head, query)];
    if (natural != -kInfinity) lse = natural * kLog2e;
  }
  p.scaled_lse[row] = lse;
  p.delta[row] = delta;
  if (query % Tile::kQueries < kKeyWarpgroups) p.turns[row / Tile::kQueries * kKeyWarpgroups + query % Tile::kQueries] = 0;
}

// Scales and rounds the sums of one chunk of dQ: 64 queries x 64 columns. A tile that no key tile has seen is 0.
template <class Tile>
__global__ void __launch_bounds__(kAroundThreads) backward_postprocess(const __grid_constant__ AroundParameters p) {
  using Element = typename Tile::Element;
  constexpr int kPitch = 72;  // elements; rows 144 bytes apart, so that neither side has bank conflicts
  __shared__ __align__(16) Element tile[64 * kPitch];
  const Shape& s = p.shape;
  const int chunk = static_cast<int>(blockIdx.x) % kKeyWarpgroups;
  const std::int64_t place = blockIdx.x / kKeyWarpgroups, sequence = place / p.query_tiles;
  const int query_tile = static_cast<int>(place % p.query_tiles);
  const int row_chunk = Tile::kPanels == 1 ? chunk : 0, column = Tile::kPanels == 1 ? 0 : chunk * 64;
  const int first = query_tile * Tile::kQueries, last = min(first + Tile::kQueries, s.len_q) - 1;
  const Range keys = keys_of_any(s, first, last);
  const float scale = keys.begin < keys.end ? s.scale : 0.0f;
  const float* from = p.dq_sum + (place * kKeyWarpgroups + chunk) * kChunkFloats + threadIdx.x * 4;
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float4 value = {0.0f, 0.0f, 0.0f, 0.0f};
    if (scale != 0.0f) value = *reinterpret_cast<const float4*>(from + i * 512);
    auto* to = reinterpret_cast<std::uint32_t*>(tile + row * kPitch + i * 8 + lane % 4 * 2);
    to[0] = ptx::pack<Element>(value.x * scale, value.y * scale);
    to[8 * kPitch / 2] = ptx::pack<Element>(value.z * scale, value.w * scale);
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = static_cast<int>(threadIdx.x) / 8 + i * 16, c = threadIdx.x % 8 * 8, query = first + row_chunk * 64 + r;
    if (query < s.len_q)
      *reinterpret_cast<uint4*>(static_cast<Element*>(p.dq.data) +
                                row_offset(p.dq, sequence / s.heads_q, sequence % s.heads_q, query) + column + c) =
          *reinterpret_cast<const uint4*>(tile + r * kPitch + c);
  }
}

}  // namespace fovea::cuda::sm90

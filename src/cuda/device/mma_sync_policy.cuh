// MMA policy for bf16 and fp16 with mma.sync: each warp multiplies its own rows, accumulators in fp32 registers.
// Fragment layouts: ptx/mma.cuh, ptx/ldmatrix.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/softmax.cuh"
#include "cuda/device/tile.cuh"
#include "cuda/device/tile_shape.h"
#include "cuda/ptx/arithmetic.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma.cuh"

namespace fovea::cuda {

// Longest accumulation chain on tensor cores, in columns (MMA dimension K). Tensor cores truncate when they add, so
// longer sums restart.
constexpr int kMaxChain = 128;

template <class Element_, class Tile>
struct MmaSyncPolicy {
  static constexpr TileShape kTile = Tile::kShape;
  using Exp = ApproximateExp;
  using Element = Element_;
  using Layout = TileLayout<Element, kTile.dim>;
  static constexpr int kRowTiles = kTile.row_tiles;
  static constexpr int kRows = 2 * kRowTiles;             // rows of which a thread holds columns
  static constexpr int kLanes = 4;                        // lanes that share a row
  static constexpr int kLaneStep = 1;                     // distance of these lanes
  static constexpr int kScoreColumns = kTile.stream / 4;  // columns of each score row that a thread holds
  static constexpr int kColumns = kTile.dim / 4;          // columns of each accumulator row that a thread holds
  static constexpr int kVector = 2;                       // accumulator columns that are adjacent in memory
  using Scores = float[kRows][kScoreColumns];
  using Accumulator = float[kRows][kColumns];
  static constexpr bool kAsyncMma = false;
  struct PStaging {};  // empty: the accumulator fragment of P already is the A operand of the second MMA

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ int first_row() {
    return static_cast<int>(threadIdx.x) / 32 / kTile.split_warps * 16 * kRowTiles;
  }
  static __device__ __forceinline__ int row(int i) { return first_row() + i / 2 * 16 + i % 2 * 8 + lane() / 4; }
  static __device__ __forceinline__ int score_column(int j) { return j / 2 * 8 + lane() % 4 * 2 + j % 2; }
  static __device__ __forceinline__ int column(int j) { return score_column(j); }

  static __device__ __forceinline__ void fence_shared_copies() {}

  // scores = a b^T, with a [rows, dim] and b [stream, dim]. The sum restarts after kMaxChain columns; the two
  // partial sums are added with rounding.
  static __device__ __forceinline__ void multiply_transposed(Scores& scores, const std::byte* a, const std::byte* b) {
    constexpr int kSteps = kTile.dim / 16, kFirst = kSteps < kMaxChain / 16 ? kSteps : kMaxChain / 16;
    multiply_columns<0, kFirst>(scores, a, b);
    if constexpr (kSteps > kFirst) {
      Scores rest;
      multiply_columns<kFirst, kSteps>(rest, a, b);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kScoreColumns; ++j) scores[i][j] += rest[i][j];
      }
    }
  }

  // acc += p b, with p rounded to Element and b [stream, dim].
  static __device__ __forceinline__ void multiply(Accumulator& acc, const Scores& p, const std::byte* b, PStaging&) {
    const std::uint32_t b_lane = shared_address(b) + Layout::offset(lane() % 16, lane() / 16);
#pragma unroll
    for (int k = 0; k < kTile.stream / 16; ++k) {
      std::uint32_t ra[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int j = 4 * k + i / 2 * 2;
          ra[m][i] = ptx::pack<Element>(p[2 * m + i % 2][j], p[2 * m + i % 2][j + 1]);
        }
      }
#pragma unroll
      for (int n = 0; n < kTile.dim / 16; ++n) {
        std::uint32_t rb[4];
        ptx::ldmatrix_x4_trans(rb, Layout::advance(b_lane, 2 * n) + 16 * k * Layout::kPitch);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          accumulate(acc, m, 2 * n, ra[m], rb[0], rb[1]);
          accumulate(acc, m, 2 * n + 1, ra[m], rb[2], rb[3]);
        }
      }
    }
  }

 private:
  // Over columns [16 kBegin, 16 kEnd).
  template <int kBegin, int kEnd>
  static __device__ __forceinline__ void multiply_columns(Scores& scores, const std::byte* a, const std::byte* b) {
    const std::uint32_t a_lane = shared_address(a) + Layout::offset(first_row() + lane() % 16, lane() / 16);
    const std::uint32_t b_lane = shared_address(b) + Layout::offset(lane() % 8 + lane() / 16 * 8, lane() / 8 % 2);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kScoreColumns; ++j) scores[i][j] = 0.0f;
    }
#pragma unroll
    for (int k = kBegin; k < kEnd; ++k) {
      std::uint32_t ra[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
        ptx::ldmatrix_x4(ra[m], Layout::advance(a_lane, 2 * k) + 16 * m * Layout::kPitch);
#pragma unroll
      for (int n = 0; n < kTile.stream / 16; ++n) {
        std::uint32_t rb[4];
        ptx::ldmatrix_x4(rb, Layout::advance(b_lane, 2 * k) + 16 * n * Layout::kPitch);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          accumulate(scores, m, 2 * n, ra[m], rb[0], rb[1]);
          accumulate(scores, m, 2 * n + 1, ra[m], rb[2], rb[3]);
        }
      }
    }
  }

  template <int kWidth>
  static __device__ __forceinline__ void accumulate(float (&c)[kRows][kWidth], int m, int n,
                                                    const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
    ptx::mma_m16n8k16<Element>(c[2 * m][2 * n], c[2 * m][2 * n + 1], c[2 * m + 1][2 * n], c[2 * m + 1][2 * n + 1], a,
                               b0, b1);
  }
};

}  // namespace fovea::cuda

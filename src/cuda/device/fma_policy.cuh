// MMA policy for fp32: fused multiply-adds, no TF32. The same interface as mma_sync_policy.cuh.
// The lanes of a warp form a grid of kLaneRows x kLanes. The lane at (g, t) holds rows g, g + kLaneRows, ... of the
// tile. In scores it holds columns t, t + kLanes, ...; in the accumulator columns 4t to 4t + 3 of every 4 kLanes. Lanes
// 2i and 2i + 1 are neighbours in a column of the grid, lanes i and i + 2 in a row. So every lane reads the same
// address as a neighbour, and one wavefront serves a 16-byte load of 16 lanes instead of 8.
#pragma once

#include <cstddef>

#include "cuda/device/softmax.cuh"
#include "cuda/device/tile.cuh"
#include "cuda/device/tile_shape.h"

namespace fovea::cuda {

template <class Tile>
struct FmaPolicy {
  static constexpr TileShape kTile = Tile::kShape;
  using Exp = AccurateExp;
  using Element = float;
  using Layout = TileLayout<float, kTile.dim>;
  static constexpr int kLaneRows = kTile.lane_rows;
  static constexpr int kLanes = 32 / kLaneRows;
  static constexpr int kLaneStep = 2;
  static constexpr int kRows = 16 / kLaneRows * kTile.row_tiles;
  static constexpr int kScoreColumns = kTile.stream / kLanes;
  static constexpr int kColumns = kTile.dim / kLanes;
  static constexpr int kVector = 4;                       // accumulator columns that are adjacent in memory
  static constexpr int kUnroll = kLaneRows == 4 ? 4 : 2;  // a higher factor would spill
  using Scores = float[kRows][kScoreColumns];
  using Accumulator = float[kRows][kColumns];
  static constexpr bool kAsyncMma = false;
  // P is staged in shared memory, kPiece columns at a time; every warp uses its own rows. Padding avoids bank conflicts
  // between rows.
  static constexpr int kPiece = kTile.stream < 2 * kLanes ? kTile.stream : 2 * kLanes;
  struct PStaging {
    float p[kTile.split_warps][kTile.rows()][kPiece + kLanes];
  };

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ int row(int i) {
    return static_cast<int>(threadIdx.x) / 32 / kTile.split_warps * 16 * kTile.row_tiles + lane() % 2 +
           lane() / (2 * kLanes) * 2 + kLaneRows * i;
  }
  static __device__ __forceinline__ int lane_column() { return lane() / kLaneStep % kLanes; }
  static __device__ __forceinline__ int score_column(int j) { return lane_column() + kLanes * j; }
  static __device__ __forceinline__ int column(int j) { return j / 4 * 4 * kLanes + lane_column() * 4 + j % 4; }

  static __device__ __forceinline__ void fence_shared_copies() {}

  static __device__ __forceinline__ void multiply_transposed(Scores& scores, const std::byte* a, const std::byte* b) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kScoreColumns; ++j) scores[i][j] = 0.0f;
    }
    const std::byte* a_row = a + Layout::offset(row(0), 0);
    const std::byte* b_row = b + Layout::offset(score_column(0), 0);
#pragma unroll kUnroll
    for (int chunk = 0; chunk < Layout::kChunks; ++chunk) {
      float4 rb[kScoreColumns];
#pragma unroll
      for (int j = 0; j < kScoreColumns; ++j) rb[j] = read(b_row + Layout::offset(kLanes * j, chunk));
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const float4 ra = read(a_row + Layout::offset(kLaneRows * i, chunk));
#pragma unroll
        for (int j = 0; j < kScoreColumns; ++j) {
          scores[i][j] = fmaf(ra.x, rb[j].x, scores[i][j]);
          scores[i][j] = fmaf(ra.y, rb[j].y, scores[i][j]);
          scores[i][j] = fmaf(ra.z, rb[j].z, scores[i][j]);
          scores[i][j] = fmaf(ra.w, rb[j].w, scores[i][j]);
        }
      }
    }
  }

  static __device__ __forceinline__ void multiply(Accumulator& acc, const Scores& p, const std::byte* b,
                                                  PStaging& staging) {
    auto& warp_p = staging.p[static_cast<int>(threadIdx.x) / 32 % kTile.split_warps];
    const std::byte* b_column = b + Layout::offset(0, lane_column());
#pragma unroll
    for (int piece = 0; piece < kTile.stream; piece += kPiece, b_column += kPiece * Layout::kPitch) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kPiece / kLanes; ++j) warp_p[row(i)][score_column(j)] = p[i][piece / kLanes + j];
      }
      __syncwarp();
#pragma unroll 1
      for (int k = 0; k < kPiece; k += 4) {
        float4 rp[kRows];
#pragma unroll
        for (int i = 0; i < kRows; ++i) rp[i] = *reinterpret_cast<const float4*>(&warp_p[row(i)][k]);
#pragma unroll
        for (int n = 0; n < kColumns / 4; ++n) accumulate_keys(acc, n, rp, b_column + Layout::offset(k, kLanes * n));
      }
      __syncwarp();  // all lanes have read the staging buffer before it is overwritten
    }
  }

 private:
  static __device__ __forceinline__ float4 read(const std::byte* address) {
    return *reinterpret_cast<const float4*>(address);
  }

  // acc[:, 4n : 4n + 4] += p[:, 4 keys] b[4 keys, 4 columns].
  static __device__ __forceinline__ void accumulate_keys(Accumulator& acc, int n, const float4 (&rp)[kRows],
                                                         const std::byte* b) {
    const float4 b0 = read(b), b1 = read(b + Layout::kPitch), b2 = read(b + 2 * Layout::kPitch),
                 b3 = read(b + 3 * Layout::kPitch);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      add(&acc[i][4 * n], rp[i].x, b0);
      add(&acc[i][4 * n], rp[i].y, b1);
      add(&acc[i][4 * n], rp[i].z, b2);
      add(&acc[i][4 * n], rp[i].w, b3);
    }
  }

  static __device__ __forceinline__ void add(float* to, float p, const float4& b) {
    to[0] = fmaf(p, b.x, to[0]);
    to[1] = fmaf(p, b.y, to[1]);
    to[2] = fmaf(p, b.z, to[2]);
    to[3] = fmaf(p, b.w, to[3]);
  }
};

}  // namespace fovea::cuda

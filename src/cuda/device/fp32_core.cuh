// Products of fp32 tiles by fused multiply-adds: fp32 that is really fp32. The same interface as tensor_core.cuh.
// A warp's lanes form a 4 x 8 grid: a thread holds rows g, g + 4, ... (g = lane / 8), of scores the columns t, t + 8,
// ... (t = lane % 8), of results four neighbouring columns out of every 32.
#pragma once

#include <cstddef>

#include "cuda/device/softmax.cuh"
#include "cuda/device/tile.cuh"
#include "cuda/device/tile_shape.h"

namespace fovea::cuda {

template <class Tile>
struct Fp32Core {
  static constexpr TileShape kTile = Tile::kShape;
  using Weights = AccurateWeights;
  using Element = float;
  using Layout = TileLayout<float, kTile.dim>;
  static constexpr int kRows = 4 * kTile.row_tiles;
  static constexpr int kLanes = 8;
  static constexpr int kScoreColumns = kTile.stream / 8;
  static constexpr int kColumns = kTile.dim / 8;
  static constexpr int kVector = 4;
  using Scores = float[kRows][kScoreColumns];
  using Results = float[kRows][kColumns];
  // Probabilities pass through shared memory, each warp its own rows; the padding keeps float4 reads aligned.
  struct Stage {
    float p[kTile.sharing][kTile.rows()][kTile.stream + 4];
  };

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ int row(int i) {
    return static_cast<int>(threadIdx.x) / 32 / kTile.sharing * 16 * kTile.row_tiles + lane() / 8 + 4 * i;
  }
  static __device__ __forceinline__ int score_column(int j) { return lane() % 8 + 8 * j; }
  static __device__ __forceinline__ int column(int j) { return j / 4 * 32 + lane() % 8 * 4 + j % 4; }

  static __device__ __forceinline__ void multiply_transposed(Scores& scores, const std::byte* a, const std::byte* b) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kScoreColumns; ++j) scores[i][j] = 0.0f;
    }
    const std::byte* a_row = a + Layout::offset(row(0), 0);
    const std::byte* b_row = b + Layout::offset(score_column(0), 0);
#pragma unroll 2
    for (int chunk = 0; chunk < Layout::kChunks; ++chunk) {
      float4 rb[kScoreColumns];
#pragma unroll
      for (int j = 0; j < kScoreColumns; ++j) rb[j] = read(b_row + Layout::offset(8 * j, chunk));
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const float4 ra = read(a_row + Layout::offset(4 * i, chunk));
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

  static __device__ __forceinline__ void multiply(Results& results, const Scores& p, const std::byte* b, Stage& stage) {
    auto& own = stage.p[static_cast<int>(threadIdx.x) / 32 % kTile.sharing];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kScoreColumns; ++j) own[row(i)][score_column(j)] = p[i][j];
    }
    __syncwarp();
    const std::byte* b_column = b + Layout::offset(0, lane() % 8);
#pragma unroll 1
    for (int k = 0; k < kTile.stream; k += 4) {
      float4 rp[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) rp[i] = *reinterpret_cast<const float4*>(&own[row(i)][k]);
#pragma unroll
      for (int n = 0; n < kColumns / 4; ++n) {
        step(results, n, rp, b_column + Layout::offset(k, 8 * n));
      }
    }
    __syncwarp();  // the stage is written again only after every lane has read it
  }

 private:
  static __device__ __forceinline__ float4 read(const std::byte* address) {
    return *reinterpret_cast<const float4*>(address);
  }

  // results[:, 4n..4n+3] += p[:, 4 keys] times the four keys' rows at `b`.
  static __device__ __forceinline__ void step(Results& results, int n, const float4 (&rp)[kRows], const std::byte* b) {
    const float4 b0 = read(b), b1 = read(b + Layout::kPitch), b2 = read(b + 2 * Layout::kPitch),
                 b3 = read(b + 3 * Layout::kPitch);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      add(&results[i][4 * n], rp[i].x, b0);
      add(&results[i][4 * n], rp[i].y, b1);
      add(&results[i][4 * n], rp[i].z, b2);
      add(&results[i][4 * n], rp[i].w, b3);
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

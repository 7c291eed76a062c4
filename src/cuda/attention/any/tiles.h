// Every tile in use. The instance files list them in order of preference; the last of each head dimension fits every
// GPU. Comments name the shared memory of tiles that do not fit every GPU; a KB is 1,000 bytes. Measurements:
// docs/kernels/cuda_any_notebook.md.
#pragma once

#include "cuda/device/tile_shape.h"

namespace fovea::cuda::any {

// bf16 and fp16. Two 16-row MMA tiles per warp halve the shared-memory reads of the streamed operand, which bound these
// kernels; they are used as long as the registers hold both accumulators.
struct Forward32 {
  static constexpr TileShape kShape{.dim = 32, .row_tiles = 2, .warps = 4, .stream = 64, .stages = 2, .ctas_per_sm = 2};
};
struct Forward64 {
  static constexpr TileShape kShape{
      .dim = 64, .row_tiles = 2, .warps = 4, .stream = 128, .stages = 2, .ctas_per_sm = 2};
};
struct Forward128 {
  static constexpr TileShape kShape{
      .dim = 128, .row_tiles = 2, .warps = 4, .stream = 48, .stages = 2, .ctas_per_sm = 2};
};
struct Forward256 {
  static constexpr TileShape kShape{
      .dim = 256, .row_tiles = 1, .warps = 4, .stream = 32, .stages = 2, .ctas_per_sm = 2};
};

// Half the rows, so twice the thread blocks: for problems of one head, which barely fill the chip.
struct HalfForward32 {
  static constexpr TileShape kShape{
      .dim = 32, .row_tiles = 1, .warps = 4, .stream = 64, .stages = 2, .ctas_per_sm = 3, .warpgroup = true};
};
struct HalfForward64 {
  static constexpr TileShape kShape{
      .dim = 64, .row_tiles = 1, .warps = 4, .stream = 64, .stages = 2, .ctas_per_sm = 3, .warpgroup = true};
};
struct HalfForward128 {
  static constexpr TileShape kShape{
      .dim = 128, .row_tiles = 1, .warps = 4, .stream = 64, .stages = 1, .ctas_per_sm = 3, .warpgroup = true};
};

// For problems of few rows: all warps own the same 16 queries and divide the keys.
struct FewRows32 {
  static constexpr TileShape kShape{
      .dim = 32, .row_tiles = 1, .warps = 4, .stream = 64, .stages = 2, .ctas_per_sm = 2, .split_warps = 4};
};
// 133 KB.
struct FewRows64Large {
  static constexpr TileShape kShape{
      .dim = 64, .row_tiles = 1, .warps = 8, .stream = 32, .stages = 2, .ctas_per_sm = 1, .split_warps = 8};
};
struct FewRows64 {
  static constexpr TileShape kShape{
      .dim = 64, .row_tiles = 1, .warps = 8, .stream = 16, .stages = 2, .ctas_per_sm = 2, .split_warps = 8};
};
// 135 KB.
struct FewRows128 {
  static constexpr TileShape kShape{
      .dim = 128, .row_tiles = 1, .warps = 8, .stream = 16, .stages = 2, .ctas_per_sm = 1, .split_warps = 8};
};

// Backward with 64 rows. With wgmma these are the usual tiles; with mma.sync they serve problems that barely fill the
// chip.
using HalfDkDv32 = HalfForward32;
using HalfDkDv64 = HalfForward64;
using HalfDq32 = HalfForward32;
using HalfDq64 = HalfForward64;
struct HalfDq128 {
  static constexpr TileShape kShape{
      .dim = 128, .row_tiles = 1, .warps = 4, .stream = 64, .stages = 2, .ctas_per_sm = 2, .warpgroup = true};
};

struct DkDv32 {
  static constexpr TileShape kShape{.dim = 32, .row_tiles = 2, .warps = 4, .stream = 64, .stages = 2, .ctas_per_sm = 2};
};
struct DkDv64 {
  static constexpr TileShape kShape{.dim = 64, .row_tiles = 2, .warps = 4, .stream = 32, .stages = 2, .ctas_per_sm = 2};
};
struct DkDv128 {
  static constexpr TileShape kShape{
      .dim = 128, .row_tiles = 1, .warps = 4, .stream = 64, .stages = 2, .ctas_per_sm = 2, .warpgroup = true};
};
struct DkDv256 {
  static constexpr TileShape kShape{
      .dim = 256, .row_tiles = 1, .warps = 4, .stream = 32, .stages = 1, .ctas_per_sm = 2};
};

struct Dq32 {
  static constexpr TileShape kShape{.dim = 32, .row_tiles = 2, .warps = 4, .stream = 64, .stages = 2, .ctas_per_sm = 2};
};
struct Dq64 {
  static constexpr TileShape kShape{.dim = 64, .row_tiles = 2, .warps = 4, .stream = 48, .stages = 2, .ctas_per_sm = 2};
};
struct Dq128 {
  static constexpr TileShape kShape{
      .dim = 128, .row_tiles = 2, .warps = 4, .stream = 32, .stages = 2, .ctas_per_sm = 2};
};
struct Dq256 {
  static constexpr TileShape kShape{
      .dim = 256, .row_tiles = 1, .warps = 4, .stream = 16, .stages = 2, .ctas_per_sm = 2};
};

// fp32. A thread holds 4 row_tiles x stream / 8 scores, or 8 row_tiles x stream / 16 with two lane rows. The larger and
// the squarer this register tile, the fewer shared-memory reads per FMA.
struct FewRowsFp32_32 {
  static constexpr TileShape kShape{
      .dim = 32, .row_tiles = 1, .warps = 8, .stream = 16, .stages = 2, .ctas_per_sm = 1, .split_warps = 8};
};
// 156 KB.
struct FewRowsFp32_64 {
  static constexpr TileShape kShape{
      .dim = 64, .row_tiles = 1, .warps = 8, .stream = 16, .stages = 2, .ctas_per_sm = 1, .split_warps = 8};
};
struct ForwardFp32_32 {
  static constexpr TileShape kShape{.dim = 32, .row_tiles = 2, .warps = 4, .stream = 32, .stages = 2, .ctas_per_sm = 2};
};
struct ForwardFp32_64 {
  static constexpr TileShape kShape{.dim = 64, .row_tiles = 2, .warps = 4, .stream = 32, .stages = 2, .ctas_per_sm = 2};
};
// 227 KB.
struct ForwardFp32_128Large {
  static constexpr TileShape kShape{
      .dim = 128, .row_tiles = 1, .warps = 8, .stream = 128, .stages = 1, .ctas_per_sm = 1, .lane_rows = 2};
};
// 74 KB: three thread blocks per SM of an H100 or H200.
struct ForwardFp32_128 {
  static constexpr TileShape kShape{
      .dim = 128, .row_tiles = 1, .warps = 4, .stream = 32, .stages = 1, .ctas_per_sm = 3};
};
// 212 KB.
struct ForwardFp32_256Large {
  static constexpr TileShape kShape{
      .dim = 256, .row_tiles = 1, .warps = 8, .stream = 32, .stages = 1, .ctas_per_sm = 1};
};
struct ForwardFp32_256 {
  static constexpr TileShape kShape{
      .dim = 256, .row_tiles = 1, .warps = 2, .stream = 16, .stages = 1, .ctas_per_sm = 2};
};

struct BackwardFp32_32 {
  static constexpr TileShape kShape{.dim = 32, .row_tiles = 2, .warps = 4, .stream = 32, .stages = 1, .ctas_per_sm = 2};
};
struct BackwardFp32_64 {
  static constexpr TileShape kShape{.dim = 64, .row_tiles = 1, .warps = 4, .stream = 64, .stages = 1, .ctas_per_sm = 2};
};
// 228 KB.
struct BackwardFp32_128Largest {
  static constexpr TileShape kShape{
      .dim = 128, .row_tiles = 1, .warps = 8, .stream = 64, .stages = 1, .ctas_per_sm = 1, .lane_rows = 2};
};
// 199 KB: shorter splits, for one head that all SMs work on.
struct BackwardFp32_128Larger {
  static constexpr TileShape kShape{
      .dim = 128, .row_tiles = 1, .warps = 8, .stream = 48, .stages = 1, .ctas_per_sm = 1};
};
// 108 KB: two thread blocks per SM of an H100 or H200.
struct BackwardFp32_128Large {
  static constexpr TileShape kShape{
      .dim = 128, .row_tiles = 1, .warps = 4, .stream = 32, .stages = 1, .ctas_per_sm = 2};
};
struct BackwardFp32_128 {
  static constexpr TileShape kShape{
      .dim = 128, .row_tiles = 1, .warps = 2, .stream = 32, .stages = 1, .ctas_per_sm = 3};
};
struct BackwardFp32_256 {
  static constexpr TileShape kShape{.dim = 256, .row_tiles = 1, .warps = 2, .stream = 8, .stages = 1, .ctas_per_sm = 2};
};

}  // namespace fovea::cuda::any

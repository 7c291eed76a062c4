// Every tile in use, with the bytes of shared memory it was made for. Preferred tiles first; the last of each head
// dimension fits every GPU. Measurements: docs/kernels/cuda_any.md.
#pragma once

#include "cuda/device/tile_shape.h"

namespace fovea::cuda::any {

// bf16 and fp16. Two 16-row tiles a warp halve the shared-memory reads of the streamed side, which bound these kernels;
// they are taken as long as the registers hold both tiles' results.
struct Forward32 {
  static constexpr TileShape kShape{.dim = 32, .row_tiles = 2, .warps = 4, .stream = 64, .stages = 2, .resident = 2};
};
struct Forward64 {
  static constexpr TileShape kShape{.dim = 64, .row_tiles = 2, .warps = 4, .stream = 128, .stages = 2, .resident = 2};
};
struct Forward128 {
  static constexpr TileShape kShape{.dim = 128, .row_tiles = 2, .warps = 4, .stream = 48, .stages = 2, .resident = 2};
};
struct Forward256 {
  static constexpr TileShape kShape{.dim = 256, .row_tiles = 1, .warps = 4, .stream = 32, .stages = 2, .resident = 2};
};

// Half the queries: twice the blocks of threads, where a problem of one head barely fills the chip.
struct HalfForward32 {
  static constexpr TileShape kShape{
      .dim = 32, .row_tiles = 1, .warps = 4, .stream = 64, .stages = 2, .resident = 3, .warpgroup = true};
};
struct HalfForward64 {
  static constexpr TileShape kShape{
      .dim = 64, .row_tiles = 1, .warps = 4, .stream = 64, .stages = 2, .resident = 3, .warpgroup = true};
};
struct HalfForward128 {
  static constexpr TileShape kShape{
      .dim = 128, .row_tiles = 1, .warps = 4, .stream = 64, .stages = 1, .resident = 3, .warpgroup = true};
};

// For problems of few rows: the warps share 16 queries and divide the keys.
struct FewRows32 {
  static constexpr TileShape kShape{
      .dim = 32, .row_tiles = 1, .warps = 4, .stream = 64, .stages = 2, .resident = 2, .sharing = 4};
};
// 133 KB.
struct FewRows64Large {
  static constexpr TileShape kShape{
      .dim = 64, .row_tiles = 1, .warps = 8, .stream = 32, .stages = 2, .resident = 1, .sharing = 8};
};
struct FewRows64 {
  static constexpr TileShape kShape{
      .dim = 64, .row_tiles = 1, .warps = 8, .stream = 16, .stages = 2, .resident = 2, .sharing = 8};
};
// 135 KB.
struct FewRows128 {
  static constexpr TileShape kShape{
      .dim = 128, .row_tiles = 1, .warps = 8, .stream = 16, .stages = 2, .resident = 1, .sharing = 8};
};

// Half the keys, or queries, multiplied by four warps together; with mma.sync for problems that barely fill the chip.
using HalfKeys32 = HalfForward32;
using HalfKeys64 = HalfForward64;
using HalfQueries32 = HalfForward32;
using HalfQueries64 = HalfForward64;
struct HalfQueries128 {
  static constexpr TileShape kShape{
      .dim = 128, .row_tiles = 1, .warps = 4, .stream = 64, .stages = 2, .resident = 2, .warpgroup = true};
};

struct Keys32 {
  static constexpr TileShape kShape{.dim = 32, .row_tiles = 2, .warps = 4, .stream = 64, .stages = 2, .resident = 2};
};
struct Keys64 {
  static constexpr TileShape kShape{.dim = 64, .row_tiles = 2, .warps = 4, .stream = 32, .stages = 2, .resident = 2};
};
struct Keys128 {
  static constexpr TileShape kShape{
      .dim = 128, .row_tiles = 1, .warps = 4, .stream = 64, .stages = 2, .resident = 2, .warpgroup = true};
};
struct Keys256 {
  static constexpr TileShape kShape{.dim = 256, .row_tiles = 1, .warps = 4, .stream = 32, .stages = 1, .resident = 2};
};

struct Queries32 {
  static constexpr TileShape kShape{.dim = 32, .row_tiles = 2, .warps = 4, .stream = 64, .stages = 2, .resident = 2};
};
struct Queries64 {
  static constexpr TileShape kShape{.dim = 64, .row_tiles = 2, .warps = 4, .stream = 48, .stages = 2, .resident = 2};
};
struct Queries128 {
  static constexpr TileShape kShape{.dim = 128, .row_tiles = 2, .warps = 4, .stream = 32, .stages = 2, .resident = 2};
};
struct Queries256 {
  static constexpr TileShape kShape{.dim = 256, .row_tiles = 1, .warps = 4, .stream = 16, .stages = 2, .resident = 2};
};

// fp32. A thread's share of the scores is 4 row_tiles x stream / 8, or 8 row_tiles x stream / 16 with two lane rows:
// the larger and the squarer, the fewer shared-memory reads for each multiply-add.
struct FewRowsFp32_32 {
  static constexpr TileShape kShape{
      .dim = 32, .row_tiles = 1, .warps = 8, .stream = 16, .stages = 2, .resident = 1, .sharing = 8};
};
// 156 KB.
struct FewRowsFp32_64 {
  static constexpr TileShape kShape{
      .dim = 64, .row_tiles = 1, .warps = 8, .stream = 16, .stages = 2, .resident = 1, .sharing = 8};
};
struct ForwardFp32_32 {
  static constexpr TileShape kShape{.dim = 32, .row_tiles = 2, .warps = 4, .stream = 32, .stages = 2, .resident = 2};
};
struct ForwardFp32_64 {
  static constexpr TileShape kShape{.dim = 64, .row_tiles = 2, .warps = 4, .stream = 32, .stages = 2, .resident = 2};
};
// 227 KB.
struct ForwardFp32_128Large {
  static constexpr TileShape kShape{
      .dim = 128, .row_tiles = 1, .warps = 8, .stream = 128, .stages = 1, .resident = 1, .lane_rows = 2};
};
// 74 KB: three blocks of threads on one multiprocessor of an H100 or H200.
struct ForwardFp32_128 {
  static constexpr TileShape kShape{.dim = 128, .row_tiles = 1, .warps = 4, .stream = 32, .stages = 1, .resident = 3};
};
// 208 KB.
struct ForwardFp32_256Large {
  static constexpr TileShape kShape{.dim = 256, .row_tiles = 1, .warps = 8, .stream = 32, .stages = 1, .resident = 1};
};
struct ForwardFp32_256 {
  static constexpr TileShape kShape{.dim = 256, .row_tiles = 1, .warps = 2, .stream = 16, .stages = 1, .resident = 2};
};

struct BackwardFp32_32 {
  static constexpr TileShape kShape{.dim = 32, .row_tiles = 2, .warps = 4, .stream = 32, .stages = 1, .resident = 2};
};
struct BackwardFp32_64 {
  static constexpr TileShape kShape{.dim = 64, .row_tiles = 1, .warps = 4, .stream = 64, .stages = 1, .resident = 2};
};
// 228 KB.
struct BackwardFp32_128Largest {
  static constexpr TileShape kShape{
      .dim = 128, .row_tiles = 1, .warps = 8, .stream = 64, .stages = 1, .resident = 1, .lane_rows = 2};
};
// 199 KB: smaller parts, where one head is shared by all multiprocessors.
struct BackwardFp32_128Larger {
  static constexpr TileShape kShape{.dim = 128, .row_tiles = 1, .warps = 8, .stream = 48, .stages = 1, .resident = 1};
};
// 108 KB: two blocks of threads on one multiprocessor of an H100 or H200.
struct BackwardFp32_128Large {
  static constexpr TileShape kShape{.dim = 128, .row_tiles = 1, .warps = 4, .stream = 32, .stages = 1, .resident = 2};
};
struct BackwardFp32_128 {
  static constexpr TileShape kShape{.dim = 128, .row_tiles = 1, .warps = 2, .stream = 32, .stages = 1, .resident = 3};
};
struct BackwardFp32_256 {
  static constexpr TileShape kShape{.dim = 256, .row_tiles = 1, .warps = 2, .stream = 8, .stages = 1, .resident = 2};
};

}  // namespace fovea::cuda::any

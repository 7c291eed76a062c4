// The compile-time tile of one kernel instance.
#pragma once

namespace fovea::cuda {

// A kernel takes a type with a member `kShape`, since nvcc accepts no TileShape as a kernel's template argument.
//
// A thread block holds a tile of rows() stationary rows (queries; keys in the kernel for dK and dV) and streams tiles
// of streamed_rows() rows of the other operand through `stages` stages of shared memory. A warp owns 16 * row_tiles
// whole rows, so its softmax needs no other warp. With split_warps > 1, that many warps own the same rows: each takes
// `stream` rows of every streamed tile, and they combine at the end. This shortens the dependent chain of small
// problems.
struct TileShape {
  int dim;        // columns in shared memory; smaller head dimensions are padded with zeros
  int row_tiles;  // 16-row MMA tiles per warp
  int warps;
  int stream;  // rows of the streamed operand per warp (no cudaStream)
  int stages;
  int ctas_per_sm;  // thread blocks per SM that the registers must allow (__launch_bounds__)
  int split_warps = 1;
  int lane_rows = 4;       // rows of the grid of lanes in fma_policy.cuh
  bool warpgroup = false;  // wgmma where the chip has it: wgmma_policy.cuh

  constexpr int rows() const { return 16 * row_tiles * (warps / split_warps); }
  constexpr int streamed_rows() const { return stream * split_warps; }
  constexpr int threads() const { return 32 * warps; }
};

}  // namespace fovea::cuda

// How a kernel cuts its problem: compile-time numbers of one kernel instance.
#pragma once

namespace fovea::cuda {

// A block of threads keeps `rows()` rows (queries, or keys in the kernel for dk and dv), and blocks of `block()` rows
// of the other side pass by, `stages` of them in shared memory. Each warp owns 16 `row_tiles` whole rows, so that the
// softmax needs no other warp; or `sharing` warps own the same rows, each takes its `stream` of every block, and they
// join what they found at the end: short chains for problems too small to fill the chip.
struct TileShape {
  int dim;        // columns in shared memory; a smaller head dimension is filled up with zeros
  int row_tiles;  // 16-row tiles of a warp
  int warps;
  int stream;
  int stages;
  int resident;  // blocks of threads per multiprocessor that the registers must leave room for
  int sharing = 1;
  int lane_rows = 4;       // of the grid that a warp's lanes form in fp32_core.cuh
  bool warpgroup = false;  // four warps multiply together where the chip can: warpgroup_core.cuh

  constexpr int rows() const { return 16 * row_tiles * (warps / sharing); }
  constexpr int block() const { return stream * sharing; }
  constexpr int threads() const { return 32 * warps; }
};

// Kernels take a type with a member `kShape`: this compiler does not accept a TileShape as a template argument of a
// kernel.

}  // namespace fovea::cuda

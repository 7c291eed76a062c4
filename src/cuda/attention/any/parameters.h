// What the host hands to the kernels, and the table of kernel instances it chooses from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/device/divisor.h"
#include "cuda/device/tensor_ref.h"
#include "cuda/device/tile_shape.h"

namespace fovea::cuda::any {

constexpr int kMaxSplits = 64;

// The streamed side of a tile of `rows` is cut into parts of `blocks_per_split` blocks of `block` rows, `splits` at
// most: a mask may leave a tile fewer. Results of parts go to `partial`, [splits, batch, heads, len, dim] fp32, and are
// added in order by a kernel of merge.cu; or the parts of a tile are a cluster of blocks of threads, which share its
// blocks evenly and add their results themselves.
struct Split {
  Divisor by_splits;
  int splits = 1;
  int blocks_per_split = 0;
  std::int16_t rows = 0, block = 0;
  bool in_cluster = false;
};

constexpr int kMaxCluster = 8;  // blocks of threads of a cluster

// How blocks of threads are numbered: in turns, each of them `together` neighbouring tiles of every
// sequence; the parts of a tile follow each other.
struct Grid {
  int tiles = 1, heads = 1, together = 1;
  unsigned turn = 1;  // tiles of a turn
  Divisor by_turn, by_together, by_heads;
  Divisor by_group;  // a query head's key head
};

// What a row's softmax needs to know of a part: its largest product and the sum of the weights relative to it.
struct PartialState {
  float maximum, sum;
};

// In the order of their use: a multiprocessor waits for its parameters line by line.
struct ForwardParameters {
  Grid grid;
  Split split;
  TensorRef q, k;
  Shape shape;
  TensorRef v, out, lse;         // lse.data may be null
  float* partial_out = nullptr;  // not divided by the sum; not written where the sum is 0
  PartialState* partial_state = nullptr;
};
// What the first copies of queries and keys need are three lines of 64 bytes, of which the first has 48 (sm_90).
static_assert(offsetof(ForwardParameters, shape) + offsetof(Shape, scale) <= 48 + 2 * 64);

// Row statistics that both gradient kernels read, [batch, heads_q, len_q] each: lse (+inf for a row without
// keys, so that its probabilities vanish) and delta = rowsum(dout * out).
struct BackwardParameters {
  Shape shape;
  TensorRef q, k, v, dout, dq, dk, dv;  // gradients that are not wanted are null
  const float* lse = nullptr;
  const float* delta = nullptr;
  bool accumulate = false;
  bool statistics_are_ready = false;  // the kernel ahead let this one begin only when they were
  Split split;
  Grid grid;
  float* partial_first = nullptr;   // dk, or dq
  float* partial_second = nullptr;  // dv
};

struct StatisticsParameters {
  Shape shape;
  TensorRef out, dout, lse, delta;  // delta.data null: computed from out and dout
  float* lse_result = nullptr;
  float* delta_result = nullptr;
};

struct MergeForwardParameters {
  Shape shape;
  Split split;
  const float* partial_out = nullptr;
  const PartialState* partial_state = nullptr;
  TensorRef out, lse;
};

// Of one gradient; `first_block` is the first block of threads that works on it.
struct PartialSum {
  Split split;
  bool of_keys = false;  // rows are keys, parts of queries
  int heads = 1, len = 0, dim = 0;
  const float* partial = nullptr;
  TensorRef result;
  unsigned first_block = 0;
};

struct SumPartialsParameters {
  Shape shape;
  bool accumulate = false;
  int count = 0;
  PartialSum sums[3];
};

// One compiled kernel. `split_roles`: dk and dv are made by different blocks of threads, the grid is twice as large.
struct KernelInstance {
  const void* function;
  TileShape tile;
  int shared_bytes;
  bool split_roles = false;
};

enum class Kernel : std::uint8_t { forward, backward_keys, backward_queries };

// Instances of one kernel and element type, in order of preference among those of the same dim.
std::span<const KernelInstance> instances(Kernel kernel, ElementKind kind);

// Kernels whose work is bound by memory: one instance per element type.
const void* statistics_function(ElementKind kind);
std::int64_t statistics_blocks(ElementKind kind, std::int64_t sequences, std::int64_t len_q);  // of threads
const void* merge_forward_function(ElementKind kind);
const void* sum_partials_function(ElementKind kind);
constexpr int kMemoryKernelThreads = 256;
constexpr int kStatisticsThreads = 64;  // few: the rows of one head are spread over all multiprocessors

// Never launched: its blocks may have the threads of a warpgroup where its code was compiled with wgmma, else those of
// a warp. A device that runs code for an older one multiplies as that one does.
const void* wgmma_probe();
constexpr int kWarp = 32, kWarpgroup = 128;

}  // namespace fovea::cuda::any

// Kernel parameters, and the table of kernel instances that the host chooses from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/device/fast_divmod.h"
#include "cuda/device/tensor_ref.h"
#include "cuda/device/tile_shape.h"

namespace fovea::cuda::any {

constexpr int kMaxSplits = 64;

// Split-KV, or split-Q for dK and dV: up to `splits` thread blocks work on one tile of `rows` stationary rows. Each
// takes `tiles_per_split` streamed tiles of `streamed_rows` rows; under a mask a tile may have fewer splits with work.
// Partials go to fp32 memory, [splits, batch, heads, len, dim], and combine.cu adds them in order. With `in_cluster`
// the splits of a tile form one cluster. Its thread blocks divide the streamed tiles evenly and combine over shared
// memory.
struct Split {
  FastDivmod splits_divmod;
  int splits = 1;
  int tiles_per_split = 0;
  std::int16_t rows = 0, streamed_rows = 0;
  bool in_cluster = false;
};

constexpr int kMaxCluster = 8;  // thread blocks per cluster

// The order of thread blocks (rasterization). A round takes `chunk` neighbouring tiles of every (batch, head); then the
// next round follows. The splits of a tile are neighbours.
struct Grid {
  int tiles = 1, heads = 1, chunk = 1;
  unsigned round = 1;  // tiles of a round
  FastDivmod round_divmod, chunk_divmod, heads_divmod;
  FastDivmod group_divmod;  // query head -> key head
};

// The softmax state of one row of a split: its largest product q.k, and the sum of exp(scale (product - maximum)).
struct PartialState {
  float maximum, sum;
};

// In the order of use: an SM fetches parameters line by line, and waits for each line.
struct ForwardParameters {
  Grid grid;
  Split split;
  ConstTensorRef q, k;
  Shape shape;
  ConstTensorRef v;
  TensorRef out, lse;            // lse.data may be null
  float* partial_out = nullptr;  // not yet divided by the sum; not written where the sum is 0
  PartialState* partial_state = nullptr;
};
// The first copies of Q and K need three 64-byte lines. On sm_90 parameters start 16 bytes into the first.
static_assert(offsetof(ForwardParameters, shape) + offsetof(Shape, scale) <= 48 + 2 * 64);

// lse and delta = rowsum(dout * out) are [batch, heads_q, len_q], made by backward_preprocess. A fully masked row has
// lse = +inf, so its probabilities are 0.
struct BackwardParameters {
  Shape shape;
  ConstTensorRef q, k, v, dout;
  TensorRef dq, dk, dv;  // a gradient that is not wanted is null
  const float* lse = nullptr;
  const float* delta = nullptr;
  bool accumulate = false;
  bool preprocess_done = false;  // lse and delta are complete when this kernel starts
  Split split;
  Grid grid;
  float* partial_dk_or_dq = nullptr;  // of the kernel's own gradient
  float* partial_dv = nullptr;
};

struct PreprocessParameters {
  Shape shape;
  ConstTensorRef out, dout, lse, delta;  // delta.data null: computed from out and dout
  float* lse_result = nullptr;
  float* delta_result = nullptr;
};

struct CombineForwardParameters {
  Shape shape;
  Split split;
  const float* partial_out = nullptr;
  const PartialState* partial_state = nullptr;
  TensorRef out, lse;
};

// The partials of one gradient. Thread blocks from `first_cta` on combine it.
struct PartialGradient {
  Split split;
  bool is_dkdv = false;  // rows are keys, splits divide the queries
  int heads = 1, len = 0, dim = 0;
  const float* partial = nullptr;
  TensorRef result;
  unsigned first_cta = 0;
};

struct CombineGradientsParameters {
  Shape shape;
  bool accumulate = false;
  int count = 0;
  PartialGradient gradients[3];
};

// One compiled kernel. `separate_dk_dv`: different thread blocks compute dK and dV, so the grid is twice as large.
struct KernelInstance {
  const void* function;
  TileShape tile;
  int shared_bytes;
  bool separate_dk_dv = false;
};

enum class Kernel : std::uint8_t { forward, backward_dkdv, backward_dq };

// Instances of one kernel and element type, sorted by head dimension, then by preference.
std::span<const KernelInstance> instances(Kernel kernel, ElementKind kind);

template <class T>
T by_kind(ElementKind kind, T fp32, T bf16, T fp16) {
  return kind == ElementKind::fp32 ? fp32 : kind == ElementKind::bf16 ? bf16 : fp16;
}

// Memory-bound kernels: one instance per element type.
const void* preprocess_function(ElementKind kind);
std::int64_t preprocess_ctas(ElementKind kind, std::int64_t sequences, std::int64_t len_q);
const void* combine_forward_function(ElementKind kind);
const void* combine_gradients_function(ElementKind kind);
constexpr int kCombineThreads = 256;
constexpr int kPreprocessThreads = 64;  // few, to spread the rows of one head over all SMs

// Threads per row of `dim` columns in combine.cu: a power of two, at most a warp. Each takes four columns at a time.
constexpr int threads_of_row(int dim) {
  int threads = 1;
  while (threads < 32 && threads * 4 < dim) threads *= 2;
  return threads;
}

// A kernel that is never launched. Its launch bound is a warpgroup if the code that the device runs was compiled with
// wgmma, else a warp. (A newer device may run the code of an older one.)
const void* wgmma_probe();
constexpr int kWarp = 32, kWarpgroup = 128;

}  // namespace fovea::cuda::any

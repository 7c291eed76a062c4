// Kernel parameters of cuda.sm90's backward, the tiles of an instance, and the order of key tiles.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/device/tensor_ref.h"

namespace fovea::cuda::sm90 {

constexpr int kKeys = 128;         // rows of a K/V tile
constexpr int kKeyWarpgroups = 2;  // each owns 64 of them
constexpr int kHalfFloats = 4096;  // dQ of a query tile is two halves of 64 x 64, one per key warpgroup
constexpr int kBackwardThreads = 128 * (1 + kKeyWarpgroups);
constexpr int kPreprocessThreads = 64;

// The order in which key tiles of one sequence, a split of a (batch, key head), visit the query tiles, and in which
// they add to dQ.
enum class Schedule : std::uint8_t {
  ascending,  // the first key tile adds first; query tiles descend; a key tile waits only for those launched before it
  ring,       // key tile j starts at query tile j * query_tiles / key_tiles and wraps around
};

struct KeyTileOrder {
  int query_tiles = 1, key_tiles = 1;
  int splits = 1;  // thread blocks of a key tile; each takes the next `heads` query heads of the group
  int heads = 1;
  int sequences = 1;  // batch x key heads x splits
  int section = 1;    // sequences whose key tiles are interleaved: all first ones, then all second ones
  Schedule schedule = Schedule::ascending;
};

struct BackwardParameters {
  CUtensorMap q, dout, k, v;  // dimensions (column, row, head, batch)
  Shape shape;
  KeyTileOrder order;
  // A gradient that is not wanted is null. With several splits, dk and dv are dense fp32 partials,
  // [splits, batch, heads_kv, len_k, dim].
  TensorRef dq, dk, dv;
  bool accumulate = false;
  // [batch, heads_q, query_tiles, queries of a tile]. lse * log2(e), +inf where no key is visible or no query exists.
  const float* lse = nullptr;
  const float* delta = nullptr;
  // [batch, heads_q, query_tiles, kKeyWarpgroups, kHalfFloats]. A half is [8][128 threads] float4: float4 i of a thread
  // holds its accumulators 4 i to 4 i + 3.
  float* dq_sum = nullptr;
  unsigned* turns = nullptr;  // [batch, heads_q, query_tiles, kKeyWarpgroups]: key tiles that have added so far
};

struct BackwardPreprocessParameters {
  Shape shape;
  int query_tiles = 1, queries = 64;
  ConstTensorRef out, dout, lse, delta;  // delta.data null: computed from out and dout
  TensorRef dq;                          // data null: rows that see no key need no zeros
  float* lse_result = nullptr;           // lse, delta and turns of BackwardParameters, or of TwoPassParameters
  float* delta_result = nullptr;
  unsigned* turns = nullptr;  // null for two passes
};

// Seconds of a thread block on a full chip.
struct BackwardTimes {
  double step;  // for a query tile
  double tile;  // for a key tile, beside its query tiles
};

// One compiled pair of kernels.
struct BackwardInstance {
  const void* function;
  const void* preprocess;
  int dim;      // columns in shared memory; smaller head dimensions are padded with zeros
  int queries;  // of a query tile
  int shared_bytes;
  BackwardTimes times;
};

}  // namespace fovea::cuda::sm90

// The reference's kernels, to be enqueued: plain loops in double precision, one thread block per row or key.
#pragma once

#include <cstdint>

#include "fovea/attention.h"

namespace fovea::cuda::reference {

struct Row {
  std::int64_t batch, head, index;
};

// A problem with its tensors on the device; those that are not needed or not given are null.
struct Operands {
  std::int64_t batch, heads_q, heads_kv, len_q, len_k, dim_qk, dim_v;
  double scale;
  Mask mask;
  TensorView q, k, v, out, lse, dout, delta;
  double *row_lse, *row_delta;  // [batch, heads_q, len_q] of the heads that were asked for: write_statistics fills them
};

// Doubles of scratch that one block borrows. Kernels take rows in turns, so that `blocks` of them are enough.
std::int64_t scratch_doubles(const Operands& p);

// All pointers are the device's. out [rows, dim_v], lse [rows].
void write_forward_rows(const Operands& p, const Row* rows, std::int64_t count, double* out, double* lse,
                        double* scratch, int blocks);
// lse and delta of every query row of the heads: as given, or computed here. `index` of a head is ignored.
void write_statistics(const Operands& p, const Row* heads, std::int64_t count, double* scratch, int blocks);
// dq [rows, dim_qk]
void write_query_gradients(const Operands& p, const Row* rows, std::int64_t count, double* dq, double* scratch,
                           int blocks);
// dk [keys, dim_qk], dv [keys, dim_v]; the head of a key is a key head.
void write_key_gradients(const Operands& p, const Row* keys, std::int64_t count, double* dk, double* dv,
                         double* scratch, int blocks);

}  // namespace fovea::cuda::reference

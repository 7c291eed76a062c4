// The reference's kernels, to be enqueued: plain loops in double precision, one thread block per row or key.
#pragma once

#include <cstdint>

#include "fovea/attention.h"

namespace fovea::cuda::reference {

struct Row {
  std::int64_t batch, head, index;
};

// A problem with its tensors on the device. Tensors that are not needed or not given are null.
struct DeviceProblem {
  std::int64_t batch, heads_q, heads_kv, len_q, len_k, dim_qk, dim_v;
  double scale;
  Mask mask;
  TensorView q, k, v, out, lse, dout, delta;
  double *row_lse, *row_delta;  // [batch, heads_q, len_q]; write_lse_delta fills those of the wanted heads
};

// Doubles of scratch per thread block. Thread blocks take rows in turn, so `ctas` times this is enough.
std::int64_t scratch_doubles(const DeviceProblem& p);

// All pointers are to device memory. out [rows, dim_v], lse [rows].
void write_forward_rows(const DeviceProblem& p, const Row* rows, std::int64_t count, double* out, double* lse,
                        double* scratch, int ctas);
// lse and delta of every query row of the heads: as given, or computed here. `index` of a head is ignored.
void write_lse_delta(const DeviceProblem& p, const Row* heads, std::int64_t count, double* scratch, int ctas);
// dq [rows, dim_qk]
void write_query_gradients(const DeviceProblem& p, const Row* rows, std::int64_t count, double* dq, double* scratch,
                           int ctas);
// dk [keys, dim_qk], dv [keys, dim_v]; the head of a key is a key head.
void write_key_gradients(const DeviceProblem& p, const Row* keys, std::int64_t count, double* dk, double* dv,
                         double* scratch, int ctas);

}  // namespace fovea::cuda::reference

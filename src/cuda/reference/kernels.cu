// Attention over the visible keys j of row i, and its gradients:
//   P_ij = exp(scale q_i.k_j - lse_i), out_i = sum_j P_ij v_j
//   delta_i = dout_i.out_i, dS_ij = P_ij (dout_i.v_j - delta_i)
//   dv_j = sum_i P_ij dout_i, dq_i = scale sum_j dS_ij k_j, dk_j = scale sum_i dS_ij q_i
// The threads of a thread block first divide the pairs of a row, then the columns of its result.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include "cuda/reference/kernels.h"
#include "cuda/reference/reduce.cuh"
#include "cuda/runtime/check.h"

namespace fovea::cuda::reference {
namespace {

constexpr int kThreads = kReducedThreads;

__device__ bool visible(const DeviceProblem& p, std::int64_t i, std::int64_t j) {
  // Aligned bottom right, the last query's own key is the last key.
  const std::int64_t own = p.mask.alignment == Mask::Alignment::bottom_right ? p.len_k - (p.len_q - i) : i;
  if (j < own) return p.mask.left == Mask::kUnlimited || own - j <= p.mask.left;
  return p.mask.right == Mask::kUnlimited || j - own <= p.mask.right;
}

__device__ bool given(const TensorView& t) { return t.data != nullptr; }

__device__ std::int64_t offset(const TensorView& t, std::int64_t b, std::int64_t h, std::int64_t i) {
  return b * t.strides[0] + h * t.strides[1] + i * t.strides[2];
}

__device__ double load(const TensorView& t, std::int64_t at) {
  if (t.dtype == DType::fp32) return static_cast<const float*>(t.data)[at];
  if (t.dtype == DType::bf16) return __bfloat162float(static_cast<const __nv_bfloat16*>(t.data)[at]);
  return __half2float(static_cast<const __half*>(t.data)[at]);
}

// Scalar product of n elements, each tensor read from its own offset on.
__device__ double dot(const TensorView& a, std::int64_t a_at, const TensorView& b, std::int64_t b_at, std::int64_t n) {
  double sum = 0;
  for (std::int64_t c = 0; c < n; ++c) sum += load(a, a_at + c) * load(b, b_at + c);
  return sum;
}

// Writes out [dim_v] of a query row and returns its lse to every thread. `exps` [len_k] is scratch of the thread block.
__device__ double forward_row(const DeviceProblem& p, const Row& row, double* exps, double* out) {
  const std::int64_t key_head = row.head / (p.heads_q / p.heads_kv);
  const std::int64_t q = offset(p.q, row.batch, row.head, row.index);
  double largest = -HUGE_VAL, sum = 0;
  bool any = false;
  for (std::int64_t j = threadIdx.x; j < p.len_k; j += kThreads) {
    if (!visible(p, row.index, j)) continue;
    any = true;
    exps[j] = p.scale * dot(p.q, q, p.k, offset(p.k, row.batch, key_head, j), p.dim_qk);
    largest = larger(largest, exps[j]);
  }
  any = __syncthreads_or(any);
  largest = reduce(largest, larger<double>);
  for (std::int64_t j = threadIdx.x; j < p.len_k; j += kThreads) {
    if (!visible(p, row.index, j)) continue;
    exps[j] = exp(exps[j] - largest);
    sum += exps[j];
  }
  sum = reduce(sum, sum_of<double>);
  for (std::int64_t c = threadIdx.x; c < p.dim_v; c += kThreads) {
    double column = 0;
    for (std::int64_t j = 0; j < p.len_k; ++j) {
      if (visible(p, row.index, j)) column += exps[j] * load(p.v, offset(p.v, row.batch, key_head, j) + c);
    }
    out[c] = any ? column / sum : 0;
  }
  __syncthreads();  // out is complete, and exps may be overwritten
  return any ? largest + log(sum) : -HUGE_VAL;
}

// Probability of a visible pair, and the gradient of its unscaled score.
struct Pair {
  double p, ds;
};
__device__ Pair pair(const DeviceProblem& p, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  const std::int64_t key_head = h / (p.heads_q / p.heads_kv), at = (b * p.heads_q + h) * p.len_q + i;
  const double score = p.scale * dot(p.q, offset(p.q, b, h, i), p.k, offset(p.k, b, key_head, j), p.dim_qk);
  const double dp = dot(p.dout, offset(p.dout, b, h, i), p.v, offset(p.v, b, key_head, j), p.dim_v);
  const double probability = exp(score - p.row_lse[at]);
  return {probability, probability * (dp - p.row_delta[at])};
}

__global__ void forward_rows(DeviceProblem p, const Row* rows, std::int64_t count, double* out, double* lse,
                             double* scratch, std::int64_t scratch_per_cta) {
  for (std::int64_t n = blockIdx.x; n < count; n += gridDim.x) {
    const double value = forward_row(p, rows[n], scratch + blockIdx.x * scratch_per_cta, out + n * p.dim_v);
    if (threadIdx.x == 0) lse[n] = value;
  }
}

__global__ void lse_delta(DeviceProblem p, const Row* heads, std::int64_t count, double* scratch,
                          std::int64_t scratch_per_cta) {
  double* const exps = scratch + blockIdx.x * scratch_per_cta;
  double* const computed_out = exps + p.len_k;  // [dim_v]
  for (std::int64_t n = blockIdx.x; n < count * p.len_q; n += gridDim.x) {
    const Row row{heads[n / p.len_q].batch, heads[n / p.len_q].head, n % p.len_q};
    const std::int64_t at = (row.batch * p.heads_q + row.head) * p.len_q + row.index;
    const bool computes_forward = !given(p.lse) || (!given(p.delta) && !given(p.out));
    const double lse = computes_forward ? forward_row(p, row, exps, computed_out) : 0;
    double delta = 0;
    for (std::int64_t c = threadIdx.x; c < p.dim_v && !given(p.delta); c += kThreads) {
      const double o = given(p.out) ? load(p.out, offset(p.out, row.batch, row.head, row.index) + c) : computed_out[c];
      delta += o * load(p.dout, offset(p.dout, row.batch, row.head, row.index) + c);
    }
    delta = reduce(delta, sum_of<double>);
    if (threadIdx.x != 0) continue;
    p.row_lse[at] = given(p.lse) ? load(p.lse, offset(p.lse, row.batch, row.head, row.index)) : lse;
    p.row_delta[at] = given(p.delta) ? load(p.delta, offset(p.delta, row.batch, row.head, row.index)) : delta;
  }
}

__global__ void query_gradients(DeviceProblem p, const Row* rows, std::int64_t count, double* dq, double* scratch,
                                std::int64_t scratch_per_cta) {
  double* const ds = scratch + blockIdx.x * scratch_per_cta;  // [len_k]
  for (std::int64_t n = blockIdx.x; n < count; n += gridDim.x) {
    const auto [b, h, i] = rows[n];
    const std::int64_t key_head = h / (p.heads_q / p.heads_kv);
    for (std::int64_t j = threadIdx.x; j < p.len_k; j += kThreads) {
      if (visible(p, i, j)) ds[j] = pair(p, b, h, i, j).ds;
    }
    __syncthreads();
    for (std::int64_t c = threadIdx.x; c < p.dim_qk; c += kThreads) {
      double column = 0;
      for (std::int64_t j = 0; j < p.len_k; ++j) {
        if (visible(p, i, j)) column += ds[j] * load(p.k, offset(p.k, b, key_head, j) + c);
      }
      dq[n * p.dim_qk + c] = p.scale * column;
    }
    __syncthreads();
  }
}

__global__ void key_gradients(DeviceProblem p, const Row* keys, std::int64_t count, double* dk, double* dv,
                              double* scratch, std::int64_t scratch_per_cta) {
  double* const probability = scratch + blockIdx.x * scratch_per_cta;  // [len_q]
  double* const ds = probability + p.len_q;                            // [len_q]
  const std::int64_t group = p.heads_q / p.heads_kv, columns = p.dim_qk + p.dim_v;
  for (std::int64_t n = blockIdx.x; n < count; n += gridDim.x) {
    const auto [b, key_head, j] = keys[n];
    for (std::int64_t h = key_head * group; h < (key_head + 1) * group; ++h) {
      for (std::int64_t i = threadIdx.x; i < p.len_q; i += kThreads) {
        if (!visible(p, i, j)) continue;
        const Pair at = pair(p, b, h, i, j);
        probability[i] = at.p;
        ds[i] = at.ds;
      }
      __syncthreads();
      for (std::int64_t c = threadIdx.x; c < columns; c += kThreads) {  // the columns of dk, then those of dv
        const bool of_k = c < p.dim_qk;
        const TensorView& rows = of_k ? p.q : p.dout;
        double* const sum = of_k ? dk + n * p.dim_qk + c : dv + n * p.dim_v + (c - p.dim_qk);
        double column = 0;
        for (std::int64_t i = 0; i < p.len_q; ++i) {
          if (!visible(p, i, j)) continue;
          column += (of_k ? ds[i] : probability[i]) * load(rows, offset(rows, b, h, i) + (of_k ? c : c - p.dim_qk));
        }
        *sum = (h == key_head * group ? 0 : *sum) + (of_k ? p.scale * column : column);
      }
      __syncthreads();
    }
  }
}

int ctas_for(std::int64_t count, int ctas) { return static_cast<int>(count < ctas ? count : ctas); }

}  // namespace

std::int64_t scratch_doubles(const DeviceProblem& p) {
  const std::int64_t rows = p.len_k + p.dim_v, keys = 2 * p.len_q;
  return rows > keys ? rows : keys;
}

void write_forward_rows(const DeviceProblem& p, const Row* rows, std::int64_t count, double* out, double* lse,
                        double* scratch, int ctas) {
  forward_rows<<<ctas_for(count, ctas), kThreads>>>(p, rows, count, out, lse, scratch, scratch_doubles(p));
  check(cudaGetLastError(), "the reference's forward");
}

void write_lse_delta(const DeviceProblem& p, const Row* heads, std::int64_t count, double* scratch, int ctas) {
  lse_delta<<<ctas_for(count * p.len_q, ctas), kThreads>>>(p, heads, count, scratch, scratch_doubles(p));
  check(cudaGetLastError(), "the reference's lse and delta");
}

void write_query_gradients(const DeviceProblem& p, const Row* rows, std::int64_t count, double* dq, double* scratch,
                           int ctas) {
  query_gradients<<<ctas_for(count, ctas), kThreads>>>(p, rows, count, dq, scratch, scratch_doubles(p));
  check(cudaGetLastError(), "the reference's dq");
}

void write_key_gradients(const DeviceProblem& p, const Row* keys, std::int64_t count, double* dk, double* dv,
                         double* scratch, int ctas) {
  key_gradients<<<ctas_for(count, ctas), kThreads>>>(p, keys, count, dk, dv, scratch, scratch_doubles(p));
  check(cudaGetLastError(), "the reference's dk and dv");
}

}  // namespace fovea::cuda::reference

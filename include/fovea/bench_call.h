/* The interface of a C function that `fovea bench` checks and times. ./libmine.so:symbol names
 *
 *   int symbol(const struct fovea_bench_call* call);
 *
 * which computes out = softmax(scale * q k^T + mask) v (pass 0), or dq, dk, dv from dout (pass 1), and returns
 * FOVEA_BENCH_OK or one of the codes after it. It may use call->threads threads. It must not write inputs; outputs hold
 * NaN before the call. A backward call follows a forward call with the same tensors, so out and lse hold its results.
 */
#ifndef FOVEA_BENCH_CALL_H
#define FOVEA_BENCH_CALL_H

#include <stddef.h>
#include <stdint.h>

enum { FOVEA_BENCH_OK = 0, FOVEA_BENCH_UNSUPPORTED = 1, FOVEA_BENCH_OUT_OF_MEMORY = 2, FOVEA_BENCH_ERROR = 3 };
enum { FOVEA_BENCH_FP32 = 0, FOVEA_BENCH_BF16 = 1, FOVEA_BENCH_FP16 = 2 };
enum { FOVEA_BENCH_CPU = 0, FOVEA_BENCH_CUDA = 1 };
/* Keys that query i sees. No mask: all. Causal: j <= i (top left), j <= i + len_k - len_q (bottom right). Windows:
 * own - mask_left <= j <= own + mask_right, where own is i (top left) or i + len_k - len_q (bottom right) and INT64_MAX
 * means no limit. Refuse a value that you do not know: more may come. */
enum {
  FOVEA_BENCH_NO_MASK = 0,
  FOVEA_BENCH_CAUSAL_TOP_LEFT = 1,
  FOVEA_BENCH_CAUSAL_BOTTOM_RIGHT = 2,
  FOVEA_BENCH_WINDOW_TOP_LEFT = 3,
  FOVEA_BENCH_WINDOW_BOTTOM_RIGHT = 4
};

/* Strides of batch, head and row count elements; the last dimension is contiguous. */
struct fovea_bench_tensor {
  void* data;
  int64_t batch_stride, head_stride, row_stride;
};

struct fovea_bench_call {
  size_t size; /* sizeof(struct fovea_bench_call) in fovea bench; fields are only ever added at the end */
  int pass;    /* 0 forward, 1 backward */
  int dtype;   /* of all tensors but lse */
  int mask, threads;
  int64_t batch, heads_q, heads_kv, len_q, len_k, dim_qk, dim_v;
  double scale;
  struct fovea_bench_tensor q, k, v;  /* [batch, heads, len, dim] */
  struct fovea_bench_tensor out, lse; /* lse is fp32 [batch, heads_q, len_q]; writing it is optional */
  struct fovea_bench_tensor dout;     /* null in a forward call, as are the gradients */
  struct fovea_bench_tensor dq, dk, dv;
  int device;   /* where the tensors are */
  void* stream; /* CUDA: a cudaStream_t to enqueue on (or use the legacy default stream); the call need not wait */
  int64_t mask_left, mask_right; /* of windows, else 0 */
};

#endif

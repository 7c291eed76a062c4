/* Your own kernel in CUDA: nvcc -O3 -arch=native -shared -Xcompiler -fPIC -Iinclude -o libmine.so examples/my_kernel.cu
 * fovea bench --device cuda --impl ./libmine.so:my_attention,flash --problem "b=8 hq=16 lq=512 d=64" */
#include <cuda_runtime.h>
#include <fovea/bench_call.h>
#include <math.h>

static const int kMaxDim = 256, kThreads = 128;

/* A warp per query row; lane l holds elements l, l + 32, ... of the row. */
static __global__ void attend(fovea_bench_call c) {
  const int64_t row = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= c.batch * c.heads_q * c.len_q) return;
  const int64_t i = row % c.len_q, h = row / c.len_q % c.heads_q, b = row / c.len_q / c.heads_q;
  const int64_t key_head = h / (c.heads_q / c.heads_kv);
  const bool bottom = c.mask == FOVEA_BENCH_CAUSAL_BOTTOM_RIGHT || c.mask == FOVEA_BENCH_WINDOW_BOTTOM_RIGHT;
  const bool window = c.mask == FOVEA_BENCH_WINDOW_TOP_LEFT || c.mask == FOVEA_BENCH_WINDOW_BOTTOM_RIGHT;
  const int64_t own = bottom ? i + c.len_k - c.len_q : i; /* the key where the row stands */
  const int64_t left = window ? c.mask_left : INT64_MAX;
  const int64_t right = window ? c.mask_right : c.mask == FOVEA_BENCH_NO_MASK ? INT64_MAX : 0;
  const int64_t first = left < own ? own - left : 0, last = right < c.len_k - 1 - own ? own + right : c.len_k - 1;
  const int lane = threadIdx.x % 32;
  const float* q = (const float*)c.q.data + b * c.q.batch_stride + h * c.q.head_stride + i * c.q.row_stride;
  const float* k = (const float*)c.k.data + b * c.k.batch_stride + key_head * c.k.head_stride;
  const float* v = (const float*)c.v.data + b * c.v.batch_stride + key_head * c.v.head_stride;
  float* out = (float*)c.out.data + b * c.out.batch_stride + h * c.out.head_stride + i * c.out.row_stride;
  float sums[kMaxDim / 32] = {0}, total = 0, peak = -INFINITY;
  for (int64_t j = first; j <= last; ++j) {
    float score = 0;
    for (int e = lane; e < c.dim_qk; e += 32) score += q[e] * k[j * c.k.row_stride + e];
    for (int reach = 16; reach > 0; reach /= 2) score += __shfl_xor_sync(0xffffffffu, score, reach);
    score *= (float)c.scale;
    const float raised = fmaxf(peak, score), rescale = expf(peak - raised), p = expf(score - raised);
    for (int n = 0; n < kMaxDim / 32; ++n) {
      const int e = lane + 32 * n;
      if (e < c.dim_v) sums[n] = sums[n] * rescale + p * v[j * c.v.row_stride + e];
    }
    total = total * rescale + p;
    peak = raised;
  }
  for (int n = 0; n < kMaxDim / 32; ++n) {
    const int e = lane + 32 * n;
    if (e < c.dim_v) out[e] = total > 0 ? sums[n] / total : 0;
  }
}

extern "C" int my_attention(const struct fovea_bench_call* c) {
  if (c->device != FOVEA_BENCH_CUDA || c->pass != 0 || c->dtype != FOVEA_BENCH_FP32 || c->dim_v > kMaxDim ||
      c->mask > FOVEA_BENCH_WINDOW_BOTTOM_RIGHT)
    return FOVEA_BENCH_UNSUPPORTED;
  const int64_t rows = c->batch * c->heads_q * c->len_q, rows_per_block = kThreads / 32;
  if (rows == 0) return FOVEA_BENCH_OK;
  attend<<<(unsigned)((rows + rows_per_block - 1) / rows_per_block), kThreads, 0, (cudaStream_t)c->stream>>>(*c);
  return cudaGetLastError() == cudaSuccess ? FOVEA_BENCH_OK : FOVEA_BENCH_ERROR;
}

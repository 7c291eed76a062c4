/* Your own kernel in C: cc -O2 -shared -fPIC -Iinclude -o libmine.so examples/my_kernel.c -lm
 * fovea bench --impl ./libmine.so:my_attention,flash --problem "lq=512 d=64" */
#include <fovea/bench_call.h>
#include <math.h>

static const float* row_of(const struct fovea_bench_tensor* t, int64_t b, int64_t h, int64_t i) {
  return (const float*)t->data + b * t->batch_stride + h * t->head_stride + i * t->row_stride;
}

static void attend(const struct fovea_bench_call* c, int64_t b, int64_t h, int64_t i) {
  const int64_t hkv = h / (c->heads_q / c->heads_kv);
  const int bottom = c->mask == FOVEA_BENCH_CAUSAL_BOTTOM_RIGHT || c->mask == FOVEA_BENCH_WINDOW_BOTTOM_RIGHT;
  const int window = c->mask == FOVEA_BENCH_WINDOW_TOP_LEFT || c->mask == FOVEA_BENCH_WINDOW_BOTTOM_RIGHT;
  const int64_t own = bottom ? i + c->len_k - c->len_q : i; /* the key where the row stands */
  const int64_t left = window ? c->mask_left : INT64_MAX;
  const int64_t right = window ? c->mask_right : c->mask == FOVEA_BENCH_NO_MASK ? INT64_MAX : 0;
  const int64_t first = left < own ? own - left : 0, last = right < c->len_k - 1 - own ? own + right : c->len_k - 1;
  const float* q = row_of(&c->q, b, h, i);
  float* out = (float*)row_of(&c->out, b, h, i);
  double sum = 0, peak = -INFINITY;
  for (int64_t e = 0; e < c->dim_v; ++e) out[e] = 0;
  for (int64_t j = first; j <= last; ++j) {
    const float *k = row_of(&c->k, b, hkv, j), *v = row_of(&c->v, b, hkv, j);
    double score = 0;
    for (int64_t e = 0; e < c->dim_qk; ++e) score += (double)q[e] * k[e];
    score *= c->scale;
    const double raised = score > peak ? score : peak, rescale = exp(peak - raised), p = exp(score - raised);
    for (int64_t e = 0; e < c->dim_v; ++e) out[e] = (float)(out[e] * rescale + p * v[e]);
    sum = sum * rescale + p;
    peak = raised;
  }
  for (int64_t e = 0; sum > 0 && e < c->dim_v; ++e) out[e] = (float)(out[e] / sum);
}

int my_attention(const struct fovea_bench_call* c) {
  if (c->pass != 0 || c->dtype != FOVEA_BENCH_FP32 || c->mask > FOVEA_BENCH_WINDOW_BOTTOM_RIGHT)
    return FOVEA_BENCH_UNSUPPORTED;
  for (int64_t b = 0; b < c->batch; ++b)
    for (int64_t h = 0; h < c->heads_q; ++h)
      for (int64_t i = 0; i < c->len_q; ++i) attend(c, b, h, i);
  return FOVEA_BENCH_OK;
}

/* Kernels that go wrong in every way a benchmark must survive, and one that is right. */
#include <fovea/bench_call.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static float* row_of(const struct fovea_bench_tensor* t, int64_t b, int64_t h, int64_t i) {
  return (float*)t->data + b * t->batch_stride + h * t->head_stride + i * t->row_stride;
}

/* Plain loops in double precision, no mask, fp32, forward only. */
int right(const struct fovea_bench_call* c) {
  if (c->pass != 0 || c->dtype != FOVEA_BENCH_FP32 || c->mask != FOVEA_BENCH_NO_MASK) return FOVEA_BENCH_UNSUPPORTED;
  double* weights = malloc((size_t)(c->len_k + c->dim_v) * sizeof(double));
  for (int64_t n = 0; n < c->batch * c->heads_q * c->len_q; ++n) {
    const int64_t i = n % c->len_q, h = n / c->len_q % c->heads_q, b = n / c->len_q / c->heads_q;
    const int64_t hkv = h / (c->heads_q / c->heads_kv);
    double sum = 0, *out = weights + c->len_k;
    memset(out, 0, (size_t)c->dim_v * sizeof(double));
    for (int64_t j = 0; j < c->len_k; ++j) {
      double score = 0;
      for (int64_t e = 0; e < c->dim_qk; ++e) score += (double)row_of(&c->q, b, h, i)[e] * row_of(&c->k, b, hkv, j)[e];
      sum += weights[j] = exp(score * c->scale);
      for (int64_t e = 0; e < c->dim_v; ++e) out[e] += weights[j] * row_of(&c->v, b, hkv, j)[e];
    }
    for (int64_t e = 0; e < c->dim_v; ++e) row_of(&c->out, b, h, i)[e] = (float)(out[e] / sum);
  }
  free(weights);
  return FOVEA_BENCH_OK;
}

int slightly_wrong(const struct fovea_bench_call* c) {
  const int code = right(c);
  if (code == FOVEA_BENCH_OK) row_of(&c->out, 0, 0, c->len_q - 1)[0] += 1e-3f;
  return code;
}

/* Right when it is looked at, idle when it is timed. */
int cheats(const struct fovea_bench_call* c) {
  static int calls = 0;
  return calls++ == 0 ? right(c) : FOVEA_BENCH_OK;
}

int writes_nothing(const struct fovea_bench_call* c) { return c->size > 0 ? FOVEA_BENCH_OK : FOVEA_BENCH_ERROR; }

int forgets_gradients(const struct fovea_bench_call* c) {
  if (c->pass == 0) return right(c);
  memset(c->dq.data, 0, (size_t)(c->batch * c->heads_q * c->len_q * c->dim_qk) * sizeof(float));
  return FOVEA_BENCH_OK;
}

int crashes(const struct fovea_bench_call* c) {
  (void)c;
  return *(volatile int*)8;
}

/* Right for small problems, so that one sweep holds both ends. */
int crashes_above_16(const struct fovea_bench_call* c) { return c->len_q > 16 ? crashes(c) : right(c); }

int crashes_when_timed(const struct fovea_bench_call* c) {
  static int calls = 0;
  return calls++ == 0 ? right(c) : crashes(c);
}

int writes_to_inputs(const struct fovea_bench_call* c) {
  ((float*)c->q.data)[0] = 0;
  return right(c);
}

int aborts(const struct fovea_bench_call* c) {
  (void)c;
  abort();
}

int exits(const struct fovea_bench_call* c) {
  if (write(2, "no licence found\n", 17) < 0) return FOVEA_BENCH_ERROR;
  _exit(c->size > 0 ? 7 : 0);
}

int hangs(const struct fovea_bench_call* c) {
  for (;;) pause();
  return right(c);
}

int hangs_above_16(const struct fovea_bench_call* c) { return c->len_q > 16 ? hangs(c) : right(c); }

/* Asks for more and more until it is told no. */
int runs_out_of_memory(const struct fovea_bench_call* c) {
  if (c->len_q <= 16) return right(c);
  for (int i = 0; i < 1 << 20; ++i) {
    void* block = malloc((size_t)64 << 20);
    if (block == NULL) return FOVEA_BENCH_OUT_OF_MEMORY;
    memset(block, 1, (size_t)1 << 20);
  }
  return FOVEA_BENCH_ERROR;
}

int is_killed(const struct fovea_bench_call* c) { return raise(SIGKILL) == 0 && c->size > 0; }

int returns_9(const struct fovea_bench_call* c) { return c->size > 0 ? 9 : 0; }

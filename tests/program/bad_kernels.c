/* Kernels that go wrong in every way a benchmark must survive, and one that is right. */
#include <fcntl.h>
#include <fovea/bench_call.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

typedef struct fovea_bench_call call_t;

static float* row(const struct fovea_bench_tensor* t, int64_t b, int64_t h, int64_t i) {
  return (float*)t->data + b * t->batch_stride + h * t->head_stride + i * t->row_stride;
}

static int64_t visible(const call_t* c, int64_t i) {
  const int64_t shift = c->mask == FOVEA_BENCH_CAUSAL_BOTTOM_RIGHT ? c->len_k - c->len_q : 0;
  const int64_t last = c->mask == FOVEA_BENCH_NO_MASK ? c->len_k : i + 1 + shift;
  return last < 0 ? 0 : last > c->len_k ? c->len_k : last;
}

static double dot(const float* x, const float* y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += (double)x[i] * y[i];
  return sum;
}

/* Probabilities of one query row; returns its log-sum-exp. */
static double probabilities(const call_t* c, int64_t b, int64_t h, int64_t i, double* p) {
  const int64_t n = visible(c, i), hk = h / (c->heads_q / c->heads_kv);
  double top = -INFINITY, sum = 0;
  for (int64_t j = 0; j < n; ++j) {
    p[j] = c->scale * dot(row(&c->q, b, h, i), row(&c->k, b, hk, j), c->dim_qk);
    top = fmax(top, p[j]);
  }
  for (int64_t j = 0; j < n; ++j) sum += p[j] = exp(p[j] - top);
  for (int64_t j = 0; j < n; ++j) p[j] /= sum;
  return n > 0 ? top + log(sum) : -INFINITY;
}

static void forward_row(const call_t* c, int64_t b, int64_t h, int64_t i, double* p) {
  const int64_t hk = h / (c->heads_q / c->heads_kv);
  const double lse = probabilities(c, b, h, i, p);
  if (c->lse.data) *row(&c->lse, b, h, i) = (float)lse;
  for (int64_t x = 0; x < c->dim_v; ++x) {
    double sum = 0;
    for (int64_t j = 0; j < visible(c, i); ++j) sum += p[j] * row(&c->v, b, hk, j)[x];
    row(&c->out, b, h, i)[x] = (float)sum;
  }
}

static void backward_row(const call_t* c, int64_t b, int64_t h, int64_t i, double* p) {
  const int64_t hk = h / (c->heads_q / c->heads_kv);
  const float *dout = row(&c->dout, b, h, i), *q = row(&c->q, b, h, i);
  probabilities(c, b, h, i, p);
  const double delta = dot(dout, row(&c->out, b, h, i), c->dim_v);
  for (int64_t j = 0; j < visible(c, i); ++j) {
    const double ds = c->scale * p[j] * (dot(dout, row(&c->v, b, hk, j), c->dim_v) - delta);
    for (int64_t x = 0; x < c->dim_v; ++x) row(&c->dv, b, hk, j)[x] += (float)(p[j] * dout[x]);
    for (int64_t x = 0; x < c->dim_qk; ++x) row(&c->dk, b, hk, j)[x] += (float)(ds * q[x]);
    for (int64_t x = 0; x < c->dim_qk; ++x) row(&c->dq, b, h, i)[x] += (float)(ds * row(&c->k, b, hk, j)[x]);
  }
}

static void clear(const call_t* c, const struct fovea_bench_tensor* t, int64_t heads, int64_t length, int64_t dim) {
  for (int64_t b = 0; b < c->batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < length; ++i) memset(row(t, b, h, i), 0, (size_t)dim * sizeof(float));
}

/* Plain loops in double precision, fp32, forward and backward. */
int right(const call_t* c) {
  if (c->dtype != FOVEA_BENCH_FP32) return FOVEA_BENCH_UNSUPPORTED;
  double* const p = malloc((size_t)(c->len_k + 1) * sizeof(double));
  if (!p) return FOVEA_BENCH_OUT_OF_MEMORY;
  if (c->pass == 1) {
    clear(c, &c->dq, c->heads_q, c->len_q, c->dim_qk);
    clear(c, &c->dk, c->heads_kv, c->len_k, c->dim_qk);
    clear(c, &c->dv, c->heads_kv, c->len_k, c->dim_v);
  }
  for (int64_t b = 0; b < c->batch; ++b)
    for (int64_t h = 0; h < c->heads_q; ++h)
      for (int64_t i = 0; i < c->len_q; ++i) (c->pass == 0 ? forward_row : backward_row)(c, b, h, i, p);
  free(p);
  return FOVEA_BENCH_OK;
}

int slightly_wrong(const call_t* c) {
  const int code = right(c);
  if (code == FOVEA_BENCH_OK && c->pass == 0) row(&c->out, 0, 0, c->len_q - 1)[0] += 1e-3f;
  return code;
}

/* Right when it is checked, idle when it is timed. */
int idle_when_timed(const call_t* c) {
  static int calls = 0;
  return calls++ == 0 ? right(c) : FOVEA_BENCH_OK;
}

static int64_t out_bytes(const call_t* c) {
  return c->batch * c->heads_q * c->len_q * c->dim_v * (int64_t)sizeof(float);
}

/* Computes the answer of a forward pass once, and copies it when it is timed. */
int cheats(const call_t* c) {
  static void* answer = NULL;
  if (answer != NULL) {
    memcpy(c->out.data, answer, (size_t)out_bytes(c));
    return FOVEA_BENCH_OK;
  }
  answer = malloc((size_t)out_bytes(c));
  const int code = right(c);
  if (answer != NULL) memcpy(answer, c->out.data, (size_t)out_bytes(c));
  return code;
}

int not_a_number_when_timed(const call_t* c) {
  static int calls[2] = {0, 0};
  const int code = right(c);
  if (calls[c->pass]++ > 0) *(float*)(c->pass == 0 ? c->out : c->dq).data = NAN;
  return code;
}

int writes_behind_out(const call_t* c) {
  const int code = right(c);
  memset((char*)c->out.data + out_bytes(c), 0, 64);
  return code;
}

int writes_behind_lse(const call_t* c) {
  const int code = right(c);
  memset((char*)c->lse.data + c->batch * c->heads_q * c->len_q * (int64_t)sizeof(float), 0, 64);
  return code;
}

int writes_behind_dv(const call_t* c) {
  const int code = right(c);
  if (c->pass != 0)
    memset((char*)c->dv.data + c->batch * c->heads_kv * c->len_k * c->dim_v * (int64_t)sizeof(float), 0, 64);
  return code;
}

int writes_nothing(const call_t* c) { return c->size > 0 ? FOVEA_BENCH_OK : FOVEA_BENCH_ERROR; }

int forgets_gradients(const call_t* c) {
  if (c->pass == 0) return right(c);
  memset(c->dq.data, 0, (size_t)(c->batch * c->heads_q * c->len_q * c->dim_qk) * sizeof(float));
  return FOVEA_BENCH_OK;
}

int crashes(const call_t* c) {
  (void)c;
  return *(volatile int*)8;
}

/* Its child holds what the worker had open, and a lock on a file of the test's. */
int forks_and_crashes(const call_t* c) {
  flock(open(getenv("FOVEA_TEST_LOCK"), O_RDWR), LOCK_EX);
  if (fork() == 0)
    for (;;) pause();
  return crashes(c);
}

/* Shrinks the files behind the tensors, which the bench has mapped. */
int truncates(const call_t* c) {
  const int code = right(c);
  for (int descriptor = 3; descriptor <= 4; ++descriptor)
    if (ftruncate(descriptor, 0) == 0) return FOVEA_BENCH_ERROR;
  return code;
}

/* Right for small problems, so that one sweep holds both ends. */
int crashes_above_16(const call_t* c) { return c->len_q > 16 ? crashes(c) : right(c); }

int crashes_when_timed(const call_t* c) {
  static int calls = 0;
  return calls++ == 0 ? right(c) : crashes(c);
}

int writes_to_inputs(const call_t* c) {
  ((float*)c->q.data)[0] = 0;
  return right(c);
}

int aborts(const call_t* c) {
  (void)c;
  abort();
}

int exits(const call_t* c) {
  if (write(2, "no licence found\n", 17) < 0) return FOVEA_BENCH_ERROR;
  _exit(c->size > 0 ? 7 : 0);
}

int hangs(const call_t* c) {
  for (;;) pause();
  return right(c);
}

int hangs_above_16(const call_t* c) { return c->len_q > 16 ? hangs(c) : right(c); }

/* Asks for more and more until it is told no. */
int runs_out_of_memory(const call_t* c) {
  if (c->len_q <= 16) return right(c);
  for (int i = 0; i < 1 << 20; ++i) {
    void* block = malloc((size_t)64 << 20);
    if (block == NULL) return FOVEA_BENCH_OUT_OF_MEMORY;
    memset(block, 1, (size_t)1 << 20);
  }
  return FOVEA_BENCH_ERROR;
}

/* As a library does that does not ask whether it got memory. */
int writes_to_no_memory(const call_t* c) {
  while (c->len_q > 16) memset(malloc((size_t)64 << 20), 1, 1);
  return right(c);
}

int is_killed(const call_t* c) { return raise(SIGKILL) == 0 && c->size > 0; }

int returns_9(const call_t* c) { return c->size > 0 ? 9 : 0; }

static float* last_row(const call_t* c) { return row(&c->out, c->batch - 1, c->heads_q - 1, c->len_q - 1); }

/* Right up to a factor, which cosine similarity would not see. */
int scaled(const call_t* c) {
  const int code = right(c);
  for (int64_t b = 0; c->pass == 0 && b < c->batch; ++b)
    for (int64_t h = 0; h < c->heads_q; ++h)
      for (int64_t i = 0; i < c->len_q; ++i)
        for (int64_t x = 0; x < c->dim_v; ++x) row(&c->out, b, h, i)[x] *= 0.99f;
  return code;
}

int wrong_sign(const call_t* c) {
  const int code = right(c);
  for (int64_t x = 0; c->pass == 0 && x < c->dim_v; ++x) last_row(c)[x] *= -1;
  return code;
}

int not_a_number(const call_t* c) {
  const int code = right(c);
  if (c->pass == 0) last_row(c)[0] = NAN;
  return code;
}

int infinite(const call_t* c) {
  const int code = right(c);
  if (c->pass == 0) last_row(c)[0] = INFINITY;
  return code;
}

int wrong_lse(const call_t* c) {
  const int code = right(c);
  if (c->pass == 0) *row(&c->lse, 0, 0, 0) += 0.1f;
  return code;
}

/* Right when it is checked, silent for ever when it is timed. */
int hangs_when_timed(const call_t* c) {
  static int calls = 0;
  while (calls > 3) pause();
  ++calls;
  return right(c);
}

int slow(const call_t* c) {
  usleep(100000);
  return right(c);
}

/* Answers in the worker's place: line len_q of the array when it is checked, or when it is timed. */
static int answers(const call_t* c, const char* const* lines) {
  const char* const line = lines[c->len_q - 1];
  return write(6, line, strlen(line)) < 0 ? FOVEA_BENCH_ERROR : FOVEA_BENCH_OK;
}

int answers_wrongly(const call_t* c) {
  static const char* const lines[] = {
      "{\"ok\":true,\"timer\":7}\n",           "{\"ok\":true,\"workspace_bytes\":\"many\"}\n",
      "{\"ok\":true,\"saved_bytes\":1e300}\n", "{\"ok\":true,\"peer\":[1]}\n",
      "{\"ok\":false,\"status\":7}\n",         "{\"ok\":false,\"status\":\"fine\"}\n",
      "{\"ok\":false,\"reason\":7}\n",         "{\"ok\":true,\"saved_bytes\":-1}\n",
  };
  return answers(c, lines);
}

int answers_wrongly_when_timed(const call_t* c) {
  static int64_t last = 0;
  static const char* const lines[] = {
      "{\"ok\":true}\n",
      "{\"ok\":true,\"seconds\":\"few\"}\n",
      "{\"ok\":true,\"seconds\":[]}\n",
      "{\"ok\":true,\"seconds\":[\"few\"]}\n",
      "{\"ok\":true,\"seconds\":[-1]}\n",
      "{\"ok\":true,\"seconds\":[0.001],\"launches\":3}\n",
      "{\"ok\":true,\"seconds\":[0.001],\"host_bound\":[2]}\n",
      "{\"ok\":true,\"seconds\":[0.001],\"clock_mhz\":\"high\"}\n",
  };
  if (last == c->len_q) return answers(c, lines);
  last = c->len_q;
  return right(c);
}

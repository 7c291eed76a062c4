// The C interface from C99: forward, backward, describe, merge, explain, refusals. Exits 0 if every line holds.
// Compiled with this version's header, and with each older one of frozen/: it uses nothing that they lack.
#include FOVEA_HEADER
#include <math.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;
#define CHECK(condition)                                                                   \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      printf("line %d: %s\n  last error: %s\n", __LINE__, #condition, fovea_last_error()); \
      ++failures;                                                                          \
    }                                                                                      \
  } while (0)

static int near(float got, double wanted) { return fabs(got - wanted) <= 1e-6; }

// One query (1, 0) and two keys (1, 0) and (0, 1) with scale ln 3: weights 3/4 and 1/4.
static float q[] = {1, 0}, k[] = {1, 0, 0, 1}, v[] = {8, 4, 0, 4};
static const double ln3 = 1.0986122886681098;

static fovea_tensor dense(float* data, int32_t dtype, int64_t batch, int64_t heads, int64_t length, int64_t dim) {
  fovea_tensor tensor = {.struct_size = sizeof tensor};
  CHECK(fovea_init_dense_tensor(&tensor, data, dtype, batch, heads, length, dim) == FOVEA_OK);
  return tensor;
}

static void test_forward_and_backward(void) {
  float out[2], lse[1], dout[] = {1, 0}, dq[2], dk[4], dv[4];
  const fovea_tensor q_view = dense(q, FOVEA_FP32, 1, 1, 1, 2);
  const fovea_tensor k_view = dense(k, FOVEA_FP32, 1, 1, 2, 2);
  const fovea_tensor v_view = dense(v, FOVEA_FP32, 1, 1, 2, 2);
  const fovea_tensor out_view = dense(out, FOVEA_FP32, 1, 1, 1, 2);
  const fovea_tensor lse_view = dense(lse, FOVEA_FP32, 1, 1, 1, 1);
  fovea_options options = {.struct_size = sizeof options};
  options.has_scale = 1;
  options.scale = ln3;

  fovea_forward_tensors forward = {.struct_size = sizeof forward};
  forward.q = &q_view, forward.k = &k_view, forward.v = &v_view, forward.out = &out_view, forward.lse = &lse_view;
  CHECK(fovea_attention_forward(&forward, &options) == FOVEA_OK);
  CHECK(near(out[0], 6) && near(out[1], 4) && near(lse[0], log(4)));

  const fovea_tensor dout_view = dense(dout, FOVEA_FP32, 1, 1, 1, 2);
  const fovea_tensor dq_view = dense(dq, FOVEA_FP32, 1, 1, 1, 2);
  const fovea_tensor dk_view = dense(dk, FOVEA_FP32, 1, 1, 2, 2);
  const fovea_tensor dv_view = dense(dv, FOVEA_FP32, 1, 1, 2, 2);
  fovea_backward_tensors backward = {.struct_size = sizeof backward};
  backward.q = &q_view, backward.k = &k_view, backward.v = &v_view, backward.out = &out_view;
  backward.lse = &lse_view, backward.dout = &dout_view;
  backward.dq = &dq_view, backward.dk = &dk_view, backward.dv = &dv_view;
  CHECK(fovea_attention_backward(&backward, &options) == FOVEA_OK);
  // dP = (8, 0), delta = 6, dS = P (dP - delta) = (1.5, -1.5).
  CHECK(near(dv[0], 0.75) && near(dv[1], 0) && near(dv[2], 0.25) && near(dv[3], 0));
  CHECK(near(dq[0], 1.5 * ln3) && near(dq[1], -1.5 * ln3));
  CHECK(near(dk[0], 1.5 * ln3) && near(dk[1], 0) && near(dk[2], -1.5 * ln3) && near(dk[3], 0));
}

static void test_merge(void) {
  float out_a[] = {1}, lse_a[] = {0}, out_b[] = {5}, lse_b[] = {(float)1.0986122886681098}, out[1], lse[1];
  const fovea_tensor a = dense(out_a, FOVEA_FP32, 1, 1, 1, 1);
  const fovea_tensor a_lse = dense(lse_a, FOVEA_FP32, 1, 1, 1, 1);
  const fovea_tensor b = dense(out_b, FOVEA_FP32, 1, 1, 1, 1);
  const fovea_tensor b_lse = dense(lse_b, FOVEA_FP32, 1, 1, 1, 1);
  const fovea_tensor merged = dense(out, FOVEA_FP32, 1, 1, 1, 1);
  const fovea_tensor merged_lse = dense(lse, FOVEA_FP32, 1, 1, 1, 1);
  const fovea_tensor *outs[] = {&a, &b}, *lses[] = {&a_lse, &b_lse};
  CHECK(fovea_merge_partials(outs, lses, 2, &merged, &merged_lse) == FOVEA_OK);
  CHECK(near(out[0], 4) && near(lse[0], log(4)));
}

static void test_describe(void) {
  static float data[2 * 6 * 8 * 16];
  const fovea_tensor q_view = dense(data, FOVEA_BF16, 2, 6, 5, 4), out_view = dense(data, FOVEA_FP32, 2, 6, 5, 8);
  const fovea_tensor k_view = dense(data, FOVEA_BF16, 2, 3, 7, 4), v_view = dense(data, FOVEA_BF16, 2, 3, 7, 8);
  const fovea_tensor dout_view = dense(data, FOVEA_BF16, 2, 6, 5, 8), lse_view = dense(data, FOVEA_FP32, 2, 6, 5, 1);
  static float dq[2 * 6 * 5 * 4];
  const fovea_tensor dq_view = dense(dq, FOVEA_FP32, 2, 6, 5, 4);
  fovea_options options = {.struct_size = sizeof options};
  fovea_backward_tensors tensors = {.struct_size = sizeof tensors};
  fovea_problem problem = {.struct_size = sizeof problem};
  options.mask = FOVEA_MASK_CAUSAL_BOTTOM_RIGHT;
  options.irreproducible = 1;
  tensors.q = &q_view, tensors.k = &k_view, tensors.v = &v_view, tensors.out = &out_view, tensors.lse = &lse_view;
  tensors.dout = &dout_view, tensors.dq = &dq_view;
  tensors.accumulate = 1;
  CHECK(fovea_describe_backward(&tensors, &options, &problem) == FOVEA_OK);
  CHECK(problem.struct_size == sizeof problem && problem.pass == FOVEA_BACKWARD);
  CHECK(problem.mask == FOVEA_MASK_CAUSAL_BOTTOM_RIGHT && problem.scale == 0.5);
  CHECK(problem.batch == 2 && problem.heads_q == 6 && problem.heads_kv == 3 && problem.len_q == 5);
  CHECK(problem.len_k == 7 && problem.dim_qk == 4 && problem.dim_v == 8);
  CHECK(problem.dtype == FOVEA_BF16 && problem.result_dtype == FOVEA_FP32);
  CHECK(problem.device_kind == FOVEA_CPU && problem.device_index == 0 && problem.irreproducible == 1);
  CHECK(problem.saved_state == 0 && problem.accumulate == 1);
  CHECK(problem.skip_dq == 0 && problem.skip_dk == 1 && problem.skip_dv == 1);
  CHECK(problem.mask_left == 0 && problem.mask_right == 0);
  options.mask = FOVEA_MASK_WINDOW_TOP_LEFT, options.mask_left = FOVEA_UNLIMITED, options.mask_right = 2;
  CHECK(fovea_describe_backward(&tensors, &options, &problem) == FOVEA_OK);
  CHECK(problem.mask == FOVEA_MASK_WINDOW_TOP_LEFT && problem.mask_left == FOVEA_UNLIMITED && problem.mask_right == 2);
}

static void test_explain(void) {
  fovea_problem problem = {.struct_size = sizeof problem};
  problem.batch = problem.heads_q = problem.heads_kv = 1;
  problem.len_q = problem.len_k = problem.dim_qk = problem.dim_v = 16;
  problem.scale = 0.25;
  int64_t bytes = -1;
  CHECK(fovea_workspace_bytes(&problem, NULL, &bytes) == FOVEA_OK && bytes >= 0);
  CHECK(fovea_saved_bytes(&problem, "reference", &bytes) == FOVEA_OK && bytes == 0);
  size_t needed = 0;
  char small[8] = "xxxxxxx", whole[4096];
  CHECK(fovea_explain(&problem, "reference", NULL, 0, &needed) == FOVEA_OK && needed > sizeof small);
  CHECK(fovea_explain(&problem, "reference", small, sizeof small, NULL) == FOVEA_OK && strlen(small) == 7);
  CHECK(needed <= sizeof whole && fovea_explain(&problem, "reference", whole, sizeof whole, &needed) == FOVEA_OK);
  CHECK(strlen(whole) + 1 == needed && strncmp(whole, small, 7) == 0);
  CHECK(strstr(whole, "chosen: reference\n") != NULL);
}

static void test_names_and_errors(void) {
  const size_t count = fovea_implementation_count();
  int found = 0;
  for (size_t i = 0; i < count; ++i) found += strcmp(fovea_implementation_name(i), "reference") == 0;
  CHECK(found == 1);
  CHECK(fovea_implementation_name(count) == NULL);
  CHECK(strcmp(fovea_version(), FOVEA_VERSION_STRING) == 0);
  CHECK(fovea_attention_forward(NULL, NULL) == FOVEA_INVALID_ARGUMENT);
  CHECK(strstr(fovea_last_error(), "argument `tensors`") != NULL);
}

int main(void) {
  CHECK(strcmp(fovea_last_error(), "") == 0);
  test_forward_and_backward();
  test_describe();
  test_merge();
  test_explain();
  test_names_and_errors();
  printf(failures == 0 ? "all hold\n" : "%d do not hold\n", failures);
  return failures == 0 ? 0 : 1;
}

// The same attention from C: a forward call, and what a refused call says.
#include <fovea/fovea.h>
#include <stdio.h>

int main(void) {
  static float q[4 * 64 * 16], k[4 * 64 * 16], v[4 * 64 * 16], out[4 * 64 * 16];
  for (int i = 0; i < 4 * 64 * 16; ++i) v[i] = (float)(i / 16 % 64); /* every value is its position */

  fovea_tensor q_view = {.struct_size = sizeof q_view}, k_view = q_view, v_view = q_view, out_view = q_view;
  fovea_init_dense_tensor(&q_view, q, FOVEA_FP32, 1, 4, 64, 16);
  fovea_init_dense_tensor(&k_view, k, FOVEA_FP32, 1, 4, 64, 16);
  fovea_init_dense_tensor(&v_view, v, FOVEA_FP32, 1, 4, 64, 16);
  fovea_init_dense_tensor(&out_view, out, FOVEA_FP32, 1, 4, 64, 16);
  fovea_forward_tensors tensors = {.struct_size = sizeof tensors};
  tensors.q = &q_view, tensors.k = &k_view, tensors.v = &v_view, tensors.out = &out_view;
  fovea_options options = {.struct_size = sizeof options};
  options.mask = FOVEA_MASK_CAUSAL;

  if (fovea_attention_forward(&tensors, &options) != FOVEA_OK) {
    fprintf(stderr, "%s\n", fovea_last_error());
    return 1;
  }
  printf("fovea %s: the last query sees the mean of 0..63: %.1f\n", fovea_version(), out[4 * 64 * 16 - 1]);

  out_view.sizes[2] = 63;
  if (fovea_attention_forward(&tensors, &options) != FOVEA_INVALID_ARGUMENT) return 1;
  printf("%s\n", fovea_last_error());
  return 0;
}

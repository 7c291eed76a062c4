// A host that loads the library, calls it on two threads and unloads it again: its workers must not lose their code.
// unload LIBRARY
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "fovea/fovea.h"

enum { kLength = 64, kElements = 4 * kLength * kLength };

typedef fovea_status Forward(const fovea_forward_tensors*, const fovea_options*);
typedef fovea_status InitTensor(fovea_tensor*, void*, int32_t, int64_t, int64_t, int64_t, int64_t);

static float q[kElements], out[kElements];

// Loads, calls, unloads. Equal values weigh to themselves.
static int use(const char* path) {
  void* library = dlopen(path, RTLD_NOW);
  void *found_forward, *found_init;
  Forward* forward;
  InitTensor* init;
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  found_forward = dlsym(library, "fovea_attention_forward");
  found_init = dlsym(library, "fovea_init_dense_tensor");
  if (found_forward == NULL || found_init == NULL) return 2;
  memcpy(&forward, &found_forward, sizeof forward);  // C has no cast from object to function pointer
  memcpy(&init, &found_init, sizeof init);
  {
    fovea_tensor input = {sizeof(fovea_tensor)}, output = {sizeof(fovea_tensor)};
    fovea_options options = {sizeof(fovea_options)};
    fovea_forward_tensors tensors = {sizeof(fovea_forward_tensors), &input, &input, &input, &output, NULL};
    options.threads = 2;
    if (init(&input, q, FOVEA_FP32, 4, 1, kLength, kLength) != FOVEA_OK) return 3;
    if (init(&output, out, FOVEA_FP32, 4, 1, kLength, kLength) != FOVEA_OK) return 3;
    if (forward(&tensors, &options) != FOVEA_OK || out[kElements - 1] != 0.5f) return 4;
  }
  return dlclose(library) == 0 ? 0 : 5;
}

int main(int count, char** arguments) {
  const struct timespec pause = {0, 50000000};  // until the workers have ended their watch and sleep
  int i, round, failed = count < 2;
  for (i = 0; i < kElements; ++i) q[i] = 0.5f;
  for (round = 0; round < 3 && !failed; ++round) {
    memset(out, 0, sizeof out);
    failed = use(arguments[1]);
    nanosleep(&pause, NULL);
  }
  printf("%s\n", failed ? "failed" : "unloaded three times");
  return failed;
}

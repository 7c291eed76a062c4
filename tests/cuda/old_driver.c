/* A driver of CUDA 11.4, older than any that this library is built for: the libcuda.so.1 that the loader finds first. */
#include <string.h>

int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }

int cuDriverGetVersion(int* version) {
  *version = 11040;
  return 0;
}

/* Every other function of a driver: none may be called once the version is known. */
static int fail(void) { return 999; }

int cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long flags, int* found) {
  (void)version, (void)flags;
  *function = strcmp(name, "cuInit") == 0               ? (void*)cuInit
              : strcmp(name, "cuDriverGetVersion") == 0 ? (void*)cuDriverGetVersion
              : strcmp(name, "cuGetProcAddress") == 0   ? (void*)cuGetProcAddress_v2
                                                        : (void*)fail;
  if (found != 0) *found = 0;
  return 0;
}

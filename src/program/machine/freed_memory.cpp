// Settings of glibc; other C libraries decide for themselves.
#include "program/machine/freed_memory.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace fovea::program {

void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);  // such allocations return to the system when they are freed
  mallopt(M_TRIM_THRESHOLD, -1);
#endif
}

void give_freed_memory_back() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace fovea::program

// Chooses the compilation of the row loops for this processor.
#include "baselines/row_passes.h"

namespace fovea::baselines {

extern const RowPasses row_passes_plain;
#if defined(__x86_64__)
extern const RowPasses row_passes_avx2, row_passes_avx512;
#endif

const RowPasses& row_passes() {
#if defined(__x86_64__)
  // __builtin_cpu_supports checks the processor and the operating system.
  static const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  static const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512) return row_passes_avx512;
  if (avx2) return row_passes_avx2;
#endif
  return row_passes_plain;
}

}  // namespace fovea::baselines

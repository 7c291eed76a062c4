// NVTX is a header alone; it loads the tool that the environment names. A toolkit without it shows no ranges.
#include "cuda/measure/nvtx_ranges.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#endif

namespace fovea::cuda {

#if __has_include(<nvtx3/nvToolsExt.h>)
void begin_range(const char* name) { nvtxRangePushA(name); }
void end_range() { nvtxRangePop(); }
#else
void begin_range(const char*) {}
void end_range() {}
#endif

}  // namespace fovea::cuda

// Named ranges that Nsight Systems and Nsight Compute show beside the kernels (NVTX 3). They nest; without a tool that
// listens, one costs some nanoseconds.
#pragma once

namespace fovea::cuda {

void begin_range(const char* name);
void end_range();

}  // namespace fovea::cuda

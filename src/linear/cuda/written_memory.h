// Reports writes to compute-sanitizer that it does not track.
#pragma once

#include <cstdint>

namespace fovea::cuda {

// Tells compute-sanitizer's initcheck that the work ahead in the stream has written these bytes. cuBLASLt's kernels for
// Hopper store by bulk copies, which initcheck of CUDA 13.0 does not track. Without compute-sanitizer this calls an
// empty function. In a build whose toolkit lacks the header it does nothing.
void mark_written(const void* data, std::int64_t bytes, void* stream);

}  // namespace fovea::cuda

// For tools that watch memory: what a kernel wrote by ways that they do not see.
#pragma once

#include <cstdint>

namespace fovea::cuda {

// Tells compute-sanitizer's initcheck, where the program runs under it, that these bytes are written when the stream
// comes here. cuBLASLt's kernels for Hopper store by bulk copies, which initcheck of CUDA 13.0 does not count. Costs a
// call of an empty function elsewhere; does nothing where the toolkit has no header for it.
void mark_written(const void* data, std::int64_t bytes, void* stream);

}  // namespace fovea::cuda

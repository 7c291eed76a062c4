// Device memory for one call, taken and given back in stream order from what the library keeps of it.
#pragma once

#include <cstdint>

#include "fovea/attention.h"

namespace fovea::cuda {

// Throws Error: out_of_memory with the bytes wanted and free, or invalid_argument while the stream is captured.
Buffer allocate_workspace(const AttentionProblem& problem, std::int64_t bytes, void* stream);
void release_workspace(const AttentionProblem& problem, const Buffer& workspace, void* stream);

// Most bytes that were taken from the device's pool at once since the last reset: by calls, and kept for the next on
// their streams. The reset gives back what is kept, and waits for its work to end.
std::int64_t pool_peak(int device);
void reset_pool_peak(int device);

// Gives back to the device what no call uses now; waits for its work to end.
void empty_pool(int device);

}  // namespace fovea::cuda

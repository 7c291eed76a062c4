// Device memory for one call, taken and given back in stream order from what the library keeps of it.
#pragma once

#include <cstdint>

#include "cuda/runtime/placement.h"
#include "fovea/attention.h"

namespace fovea::cuda {

// Throws Error: out_of_memory with the bytes wanted and free, or invalid_argument while the stream is captured.
Buffer allocate_workspace(const CallSite& site, std::int64_t bytes, void* stream);
Buffer allocate_workspace(const core::Plan& plan, void* stream);
void release_workspace(int device, const Buffer& workspace, void* stream);
void release_workspace(const core::Plan& plan, const Buffer& workspace, void* stream);

// Bytes that are taken from the device's pool, by calls and kept for the next on their streams; and the most at once
// since the last reset.
std::int64_t pool_used(int device);
std::int64_t pool_peak(int device);

// For programs that measure. Both wait for the device's work to end and give back to the pool what is kept; the second
// gives what the pool holds back to the device as well. Must not run beside calls, nor while a stream is captured.
void reset_pool_peak(int device);
void empty_pool(int device);

}  // namespace fovea::cuda

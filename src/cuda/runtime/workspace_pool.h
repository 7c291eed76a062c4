// Workspaces of calls, allocated and freed in stream order from the library's memory pool.
#pragma once

#include <cstdint>

#include "cuda/runtime/placement.h"
#include "fovea/attention.h"

namespace fovea::cuda {

// Both enqueue on the stream; while it is captured into a graph, they become memory nodes of the graph. Allocation
// throws Error(out_of_memory) with the bytes wanted and free.
Buffer allocate_workspace(const core::Plan& plan, void* stream);
void release_workspace(const core::Plan& plan, const Buffer& workspace, void* stream);

// Bytes allocated from the device's pool, in use or kept for later calls, and their peak since the last reset. Memory
// of graphs is not counted.
std::int64_t pool_used(int device);
std::int64_t pool_peak(int device);

// For programs that measure. Both wait for the device's work to end and free the kept blocks; empty_pool also returns
// the pool's memory to the device. Must not be called during other calls, nor while a stream is captured.
void reset_pool_peak(int device);
void empty_pool(int device);

}  // namespace fovea::cuda

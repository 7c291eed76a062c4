// Launching a kernel by its address.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace fovea::cuda {

// Thread blocks of this kernel that one SM of the device holds at once. Asked once for the same arguments; raises the
// kernel's limit of dynamic shared memory to the device's on the way, so it must come before the first launch.
int resident_blocks(const void* function, int threads, int shared_bytes, int device);

// Threads that a block of this kernel may have in the code that the device runs. Asked once per kernel and device.
int threads_allowed(const void* function, int device);

// When a kernel's blocks may be placed: after the kernel ahead in the stream, or, on devices that can, while it runs;
// the kernel must then call ptx::wait_for_earlier_kernels().
enum class Begin : std::uint8_t { after, early };

// Whether any kernel may begin early: unless FOVEA_CUDA_EARLY_LAUNCH is 0. Asked once.
bool may_begin_early();

// How a multiprocessor divides its memory into shared memory and L1 cache while the kernel runs: as the kernel needs,
// or the most for the former. Kernels find places on one multiprocessor at the same time only if they agree.
enum class Memory : std::uint8_t { as_needed, mostly_shared };

// How many clusters of so many blocks the current device holds at once; 0 where it or the kernel's code has none. Asked
// once for the same arguments, after resident_blocks.
int resident_clusters(const void* function, int threads, int shared_bytes, int cluster, int device);

// Enqueues on the current device; throws Error if the launch is refused. `parameters` is the kernel's only argument.
// `cluster` neighbouring blocks are placed together.
void launch(const void* function, std::int64_t blocks, int threads, int shared_bytes, cudaStream_t stream,
            const void* parameters, Begin begin, Memory memory = Memory::as_needed, int cluster = 1);

}  // namespace fovea::cuda

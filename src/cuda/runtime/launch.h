// Launching a kernel by its address.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace fovea::cuda {

// Blocks of this kernel that one multiprocessor of the device holds at once. Asked once per kernel and device; raises
// the kernel's limit of dynamic shared memory on the way, so it must come before the first launch.
int resident_blocks(const void* function, int threads, int shared_bytes, int device);

// When a kernel's blocks may be placed: after the kernel ahead in the stream, or, on devices that can, while it runs;
// the kernel must then call ptx::wait_for_earlier_kernels().
enum class Begin : std::uint8_t { after, early };

// Enqueues on the current device; throws Error if the launch is refused. `parameters` is the kernel's only argument.
void launch(const void* function, std::int64_t blocks, int threads, int shared_bytes, cudaStream_t stream,
            const void* parameters, Begin begin);

}  // namespace fovea::cuda

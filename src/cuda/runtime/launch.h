// Launching a kernel by its address.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>

namespace fovea::cuda {

// Thread blocks of this kernel that fit one SM at once. The driver is asked once per set of arguments. Call before the
// first launch: this also raises the kernel's limit of dynamic shared memory to that of the device.
int resident_ctas(const void* function, int threads, int shared_bytes, int device);

// Threads that a thread block of this kernel may have, in the code that the device runs. Asked once per kernel and
// device.
int threads_allowed(const void* function, int device);

// Whether the device can run this kernel: the build has machine code for it, or PTX that the driver may compile.
bool has_code(const void* function, int device);

// What a kernel waits for before it starts. `full`: the end of the previous kernel in the stream. `programmatic`: with
// programmatic dependent launch (PDL) it may start earlier. Then it must call ptx::griddepcontrol_wait().
enum class Dependency : std::uint8_t { full, programmatic };

// False if FOVEA_CUDA_EARLY_LAUNCH is 0: then all kernels are serialized. Read once.
bool pdl_enabled();

// How an SM divides its memory between shared memory and L1 cache while the kernel runs. It has as much shared memory
// as the kernel needs, or as much as possible. Two kernels can share an SM only if they agree.
enum class Carveout : std::uint8_t { as_needed, max_shared };

// Clusters of `cluster` thread blocks that fit the device at once; 0 if the device or the kernel's code has no
// clusters. The driver is asked once per set of arguments. Call after resident_ctas, and before the first launch with
// more than 8 thread blocks in a cluster, which this allows.
int resident_clusters(const void* function, int threads, int shared_bytes, int cluster, int device);

// The problem of an Error about a kernel that the driver did not launch and does not say why.
inline constexpr std::string_view kNotLaunched = "the driver did not launch the kernel";

// Enqueues on the current device; throws Error if the launch is refused. `parameters` is the kernel's only argument.
// `cluster` neighbouring thread blocks form a cluster.
void launch(const void* function, std::int64_t ctas, int threads, int shared_bytes, cudaStream_t stream,
            const void* parameters, Dependency dependency, Carveout carveout = Carveout::as_needed, int cluster = 1);

}  // namespace fovea::cuda

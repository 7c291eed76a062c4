// Calls of the library on the first GPU with tensors that lie on the host: everything that checks answers on the CPU
// checks the GPU's as well.
#pragma once

#include "fovea/attention.h"

namespace fovea::cuda {

// The tensors are copied to the device with the same strides and the same alignment, and back after the call. A tensor
// that ends where a page ends has an allocation that ends with it (compute-sanitizer sees what is read behind it);
// round the others lies poison. Throws Error for what the call throws, for a write outside a tensor and for a changed
// input. A workspace of the options stands for one of as many bytes on the device.
void forward_on_device(const ForwardTensors& tensors, const AttentionOptions& options);
void backward_on_device(const BackwardTensors& tensors, const AttentionOptions& options);

// After an access to memory that is not there every call of the process fails.
bool device_lost();

}  // namespace fovea::cuda

// Checks that need the device itself: repeated launches bit by bit, refusals, tensors beyond 2^31 elements.
#pragma once

namespace fovea::cuda {

// Launches every kernel family `count` times on the same inputs; 0 if every answer has the same bits.
int repeat_bitwise(int count);

// Calls that must be refused before anything is written, with the words that the message must hold; and `count` random
// descriptors, on which the CPU's verdict is the right one.
int check_refusals(int count);

// Tensors of more than 2^31 elements: the last rows and keys against calls on these alone.
int check_large();

// Calls while the device's memory is full: each is right, or refused with the bytes wanted and free and nothing
// written.
int check_exhaustion();

// Every function of src/cuda/ptx against a scalar model.
int check_ptx();

// The double-precision kernels of src/cuda/reference against the CPU's reference.
int check_reference();

// Layers' products and attention of src/cuda/reference against the CPU's evaluator.
int check_layer_reference();

// A call's launches alone against the call.
int check_launches();

// Calls with a workspace of the library's, on streams of every kind.
int check_workspaces();

// Plans of the first two devices in turns, from several threads: cuda.any's, and cuda.sm90's unless it refuses a
// device.
int check_devices();

// Every compiled tile: unsplit, with splits through memory and in clusters, also on problems that never choose it.
int check_tiles();

// Tensor maps that a thread keeps against maps encoded anew. Nothing on GPUs without them.
int check_tensor_maps();

// Every forward tile of cuda.sm90, packed and split in every way, on few thread blocks. Nothing on other GPUs.
int check_hopper_tiles();

// Rows whose scores are all -infinity, in every tile and implementation: NaN, and nothing else changes.
int check_infinite_scores();

// Linear's products, gradients and sums against the reference on the host.
int check_linear();

// The kernel that copies a layer's weights, byte by byte.
int check_weight_copies();

// Layers against their formulas on the host.
int check_layers();

// The transformer: its passes, its loss, gradients and steps; or tiny models alone, which a sanitizer ends in seconds.
int check_model(bool tiny);

}  // namespace fovea::cuda

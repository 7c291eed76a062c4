// Batched matrix products by cuBLASLt, which is loaded at run time if the machine has it.
#pragma once

#include <string>

#include "fovea/attention.h"
#include "linear/product.h"

namespace fovea::cuda {

// "no cuBLASLt: ..." if the machine has none or one that is too old; empty if multiply() works. Found out once.
const std::string& missing_matrix_library();

// Enqueues on the stream, on the current device. `workspace` must be 256-byte aligned; without one, cuBLASLt chooses an
// algorithm that needs none. Products that agree in sizes, types, strides, alignments, presence of a bias and workspace
// size use the same algorithm. A bias must have the type of c. Throws Error if cuBLASLt refuses or is missing.
void multiply(const linear::BatchedProduct& product, void* stream, const Buffer& workspace);

}  // namespace fovea::cuda

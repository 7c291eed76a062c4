// Batched matrix products by cuBLASLt, loaded while the program runs if the machine has it.
#pragma once

#include <string>

#include "fovea/attention.h"
#include "linear/product.h"

namespace fovea::cuda {

// "no cuBLASLt: ..." if the machine has none or one that is too old; empty if products can be asked for. Asked once.
const std::string& missing_matrix_library();

// Enqueues on the stream, on the current device. The library keeps intermediate results in `workspace` only, whose
// first byte 256 divides; without one it takes an algorithm that has none. Products of one kind (sizes, types, strides,
// alignments, bias or none, bytes of workspace) are computed by one algorithm. Throws Error if the library refuses or
// is missing. A bias must be of the type of c.
void multiply(const linear::BatchedProduct& product, void* stream, const Buffer& workspace);

}  // namespace fovea::cuda

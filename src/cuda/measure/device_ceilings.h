// The highest rates that the first GPU reaches now.
#pragma once

#include "fovea/tensor.h"

namespace fovea::cuda {

// Flops per second of a large matrix product of random numbers, with fp32 sums; for fp32 the faster of two, without
// TF32. Calls cuBLASLt; 0 if that cannot be loaded. Takes a little longer than `seconds`.
double product_flops(DType dtype, double seconds);

// Bytes read plus bytes written per second by a copy within the device's memory.
double copy_bandwidth();

}  // namespace fovea::cuda

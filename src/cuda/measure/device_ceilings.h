// What the first GPU can do at most, measured now.
#pragma once

#include "fovea/tensor.h"

namespace fovea::cuda {

// Rate of a large square matrix product of random numbers, flops/s, fp32 sums; fp32 is true fp32. Calls cuBLASLt,
// which is loaded if it is there; 0 where it is not. Takes a little longer than `seconds`.
double product_flops(DType dtype, double seconds);

// Bytes read plus bytes written per second by a copy within the device's memory.
double copy_bandwidth();

}  // namespace fovea::cuda

// What the machine can do at most, measured now: the denominators of `ceiling_share`.
#pragma once

#include <map>
#include <string>

#include "fovea/tensor.h"

namespace fovea::program {

// Multiply-add rate of `threads` threads in registers for inputs of this type, flops/s, from a probe of about
// `seconds`; 0 where the device has no probe.
double probe_flops(DeviceKind device, DType dtype, int threads, double seconds);

// Rate of the best library matrix product, fp32, flops/s.
double probe_product(int threads);

// What `info` and the environment of records show, by name: fma_fp32, dot_bf16, product_fp32 in flops/s and
// read_bandwidth in bytes/s. Takes about half a second.
std::map<std::string, double> probe_all(int threads);

}  // namespace fovea::program

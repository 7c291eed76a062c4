// What the machine can do at most, measured now: the denominators of `ceiling_share`.
#pragma once

#include <map>
#include <string>

#include "fovea/tensor.h"

namespace fovea::program {

// Multiply-add rate of `threads` threads for inputs of this type, flops/s, from a probe of some milliseconds; 0 where
// there is no probe.
double probe_flops(DeviceKind device, DType dtype, int threads);

// Rate of the best library matrix product of this type, flops/s; 0 if the program was built without one.
double probe_product(DeviceKind device, DType dtype, int threads);

// Everything `info` and the environment block show, by name.
std::map<std::string, double> probe_all(int threads);

}  // namespace fovea::program

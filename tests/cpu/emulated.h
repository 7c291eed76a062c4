// Tables of the AVX-512 and AMX kernels over portable vectors.
#pragma once

#include "cpu/kernels/kernels.h"

namespace fovea::cpu {

extern const Kernels kEmulatedAvx512Kernels;
extern const Kernels kEmulatedAvx512Bf16Kernels;
extern const Kernels kEmulatedAmxKernels;

}  // namespace fovea::cpu

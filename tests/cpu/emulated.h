// Tables of the AVX-512 kernels over portable vectors.
#pragma once

#include <vector>

#include "cpu/isa.h"
#include "cpu/kernels/kernels.h"

namespace fovea::cpu {

extern const Kernels kEmulatedAvx512Kernels;
extern const Kernels kEmulatedAvx512Bf16Kernels;

// These, and the kernels of every instruction set that this machine runs.
inline std::vector<const Kernels*> all_kernels() {
  std::vector<const Kernels*> all{&kEmulatedAvx512Kernels, &kEmulatedAvx512Bf16Kernels};
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_bf16})
    if (missing(isa).empty()) all.push_back(kernels_of(isa));
  return all;
}

}  // namespace fovea::cpu

// The probes of a target: what programs measure a processor with.
#pragma once

#include <stdint.h>

namespace fovea::cpu {

struct Probes {
  // Floating-point operations of `iterations` rounds of register-only work: multiply-adds, and bf16 dot products (of
  // AMX: of tile registers). Null if the target lacks the instruction.
  double (*fma_peak)(int64_t iterations);
  double (*dot_peak)(int64_t iterations);
  float (*read)(const float* data, int64_t count);
};

extern const Probes kScalarProbes;
extern const Probes kAvx2Probes;
extern const Probes kAvx512Probes;
extern const Probes kAvx512Bf16Probes;
extern const Probes kAmxProbes;

}  // namespace fovea::cpu

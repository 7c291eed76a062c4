// The portable probes.
#define FOVEA_TARGET scalar_probes
#define FOVEA_SCALAR_LANES 4

#include "cpu/simd/vec_scalar.h"

#include "cpu/measure/probes.inl.h"

constexpr fovea::cpu::Probes fovea::cpu::kScalarProbes{fovea::cpu::FOVEA_TARGET::fma_peak, nullptr,
                                                      fovea::cpu::FOVEA_TARGET::read_all};

// The probes of AVX2.
#define FOVEA_TARGET avx2_probes

#include "cpu/simd/vec_avx2.h"

#include "cpu/measure/probes.inl.h"

constexpr fovea::cpu::Probes fovea::cpu::kAvx2Probes{fovea::cpu::FOVEA_TARGET::fma_peak, nullptr,
                                                    fovea::cpu::FOVEA_TARGET::read_all};

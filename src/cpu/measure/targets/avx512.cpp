// The probes of AVX-512.
#define FOVEA_TARGET avx512_probes

#include "cpu/simd/vec_avx512.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int kChains = 12;  // of independent operations: at least latency times issue width on current cores

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

#include "cpu/measure/probes.inl.h"

constexpr fovea::cpu::Probes fovea::cpu::kAvx512Probes{fovea::cpu::FOVEA_TARGET::fma_peak, nullptr,
                                                       fovea::cpu::FOVEA_TARGET::read_all};

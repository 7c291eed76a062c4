// The probes of AVX2.
#define FOVEA_TARGET avx2_probes

#include "cpu/simd/vec_avx2.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int kChains = 12;  // of independent operations: at least latency times issue width on current cores

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

#include "cpu/measure/probes.inl.h"

constexpr fovea::cpu::Probes fovea::cpu::kAvx2Probes{fovea::cpu::FOVEA_TARGET::fma_peak, nullptr,
                                                     fovea::cpu::FOVEA_TARGET::read_all};

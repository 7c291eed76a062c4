// The portable probes.
#define FOVEA_TARGET scalar_probes
#define FOVEA_SCALAR_LANES 4

#include "cpu/simd/vec_scalar.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int kChains = 12;  // of independent operations: at least latency times issue width on current cores

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

#include "cpu/measure/probes.inl.h"

constexpr fovea::cpu::Probes fovea::cpu::kScalarProbes{fovea::cpu::FOVEA_TARGET::fma_peak, nullptr,
                                                       fovea::cpu::FOVEA_TARGET::read_all};

// The probes of AVX512_BF16.
#define FOVEA_TARGET avx512_bf16_probes

#include "cpu/simd/pairs_avx512_bf16.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int kChains = 12;  // of independent operations: at least latency times issue width on current cores

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

#include "cpu/measure/probes.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

// As fma_peak, with dot products of two bf16.
double dot_peak(int64_t iterations) {
  constexpr uint32_t kFactors = 0x3e803f00u;  // 0.5, 0.25
  Vec x[kChains];
  for (int i = 0; i < kChains; ++i) x[i] = broadcast(static_cast<float>(i) * 1e-3f);
  const PairVec a = broadcast_pair(&kFactors), b = broadcast_pair(&kFactors);
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) x[i] = dot(a, b, x[i]);
  }
  keep(x);
  return static_cast<double>(iterations) * kChains * kLanes * 2 * 2;
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

constexpr fovea::cpu::Probes fovea::cpu::kAvx512Bf16Probes{
    fovea::cpu::FOVEA_TARGET::fma_peak, fovea::cpu::FOVEA_TARGET::dot_peak, fovea::cpu::FOVEA_TARGET::read_all};

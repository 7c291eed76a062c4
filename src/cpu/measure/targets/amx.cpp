// The probe of AMX's tile registers.
#define FOVEA_TARGET amx_probes

#include "cpu/simd/tiles_amx.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int kChains = 12;  // of independent operations: at least latency times issue width on current cores

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

#include "cpu/measure/probes.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

// As fma_peak, with products of 16 x 32 and 32 x 16 bf16 in six tiles.
double tile_peak(int64_t iterations) {
  constexpr double kFlops = 2.0 * 16 * 16 * 32;
  configure_tiles();
  for (int64_t n = 0; n < iterations; ++n) {
    dot_tiles<0, 6, 7>();
    dot_tiles<1, 6, 7>();
    dot_tiles<2, 6, 7>();
    dot_tiles<3, 6, 7>();
    dot_tiles<4, 6, 7>();
    dot_tiles<5, 6, 7>();
  }
  release_tiles();
  return static_cast<double>(iterations) * 6 * kFlops;
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

constexpr fovea::cpu::Probes fovea::cpu::kAmxProbes{
    fovea::cpu::FOVEA_TARGET::fma_peak, fovea::cpu::FOVEA_TARGET::tile_peak, fovea::cpu::FOVEA_TARGET::read_all};

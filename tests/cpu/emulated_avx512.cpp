// The kernels with the lanes and tiles of AVX-512 over portable vectors: their logic runs on machines without it.
#define FOVEA_TARGET emulated_avx512
#define FOVEA_SCALAR_LANES 16

#include "cpu/simd/vec_scalar.h"
#include "emulated.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int kTileRows = 8;
constexpr int kTileVectors = 3;
constexpr int kDimTileRows = 6;
constexpr int kDimTileVectors = 4;
constexpr int kProductRows = 12;
constexpr int kProductVectors = 2;

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

#include "cpu/kernels/operands_fp32.inl.h"
#include "cpu/kernels/table.inl.h"

constexpr fovea::cpu::Kernels fovea::cpu::kEmulatedAvx512Kernels = fovea::cpu::FOVEA_TARGET::table();

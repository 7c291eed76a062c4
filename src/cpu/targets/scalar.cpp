// The portable target: four lanes, which every 64-bit processor has, and the tiles of AVX2, which has as many
// registers.
#define FOVEA_TARGET scalar
#define FOVEA_SCALAR_LANES 4

#include "cpu/simd/vec_scalar.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int kTileRows = 4;        // of a tile with queries in the lanes: keys or head dimensions
constexpr int kTileVectors = 3;     // of queries
constexpr int kDimTileRows = 6;     // of a tile with head dimensions in the lanes: keys
constexpr int kDimTileVectors = 2;  // of head dimensions
constexpr int kProductRows = 6;     // of a tile of Linear's products
constexpr int kProductVectors = 2;  // of its columns

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

#include "cpu/kernels/operands_fp32.inl.h"
#include "cpu/kernels/table.inl.h"

constexpr fovea::cpu::Kernels fovea::cpu::kScalarKernels = fovea::cpu::FOVEA_TARGET::table();

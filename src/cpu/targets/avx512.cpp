// The AVX-512 target: 8 x 3 accumulators of the 32 registers; 8 divides the usual head dimensions.
#define FOVEA_TARGET avx512

#include "cpu/simd/vec_avx512.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int kTileRows = 8;        // of a tile with queries in the lanes: keys or head dimensions
constexpr int kTileVectors = 3;     // of queries
constexpr int kDimTileRows = 6;     // of a tile with head dimensions in the lanes: keys
constexpr int kDimTileVectors = 4;  // of head dimensions
constexpr int kProductRows = 12;    // of a tile of Linear's products
constexpr int kProductVectors = 2;  // of its columns

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

#include "cpu/kernels/operands_fp32.inl.h"
#include "cpu/kernels/table.inl.h"

constexpr fovea::cpu::Kernels fovea::cpu::kAvx512Kernels = fovea::cpu::FOVEA_TARGET::table();

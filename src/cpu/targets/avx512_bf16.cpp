// The AVX512_BF16 target: the AVX-512 tiles, with two bf16 products per lane and instruction.
#define FOVEA_TARGET avx512_bf16

#include "cpu/simd/pairs_avx512_bf16.h"

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

#include "cpu/kernels/operands_bf16.inl.h"
#include "cpu/kernels/table.inl.h"

constexpr fovea::cpu::Kernels fovea::cpu::kAvx512Bf16Kernels = fovea::cpu::FOVEA_TARGET::table();

// The AMX target: products of bf16 in tile registers, of 32 queries and 32 keys; the rest is AVX512_BF16.
#define FOVEA_TARGET amx
#define FOVEA_FOR_AMX  // instructions that are fast on its processors

#include "cpu/simd/tiles_amx.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int kTileRows = 8;        // of a tile with queries in the lanes: keys or head dimensions
constexpr int kTileVectors = 2;     // of queries
constexpr int kDimTileRows = 6;     // of a tile with head dimensions in the lanes: keys
constexpr int kDimTileVectors = 4;  // of head dimensions
constexpr int kProductRows = 12;    // of a tile of Linear's products
constexpr int kProductVectors = 2;  // of its columns

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

#include "cpu/kernels/operands_bf16.inl.h"
#include "cpu/kernels/table_amx.inl.h"

constexpr fovea::cpu::Kernels fovea::cpu::kAmxKernels = fovea::cpu::FOVEA_TARGET::amx_table();

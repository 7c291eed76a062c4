// The portable target: four lanes, which every 64-bit processor has; the tile of AVX2, since the registers are as many.
#include "cpu/kernels/kernels.h"

#define FOVEA_TARGET scalar
#define FOVEA_SCALAR_LANES 4
#include "cpu/simd/vec_scalar.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int kTileRows = 4;        // of a tile with queries in the lanes: keys or head dimensions
constexpr int kTileVectors = 3;     // of queries
constexpr int kDimTileRows = 6;     // of a tile with head dimensions in the lanes: keys
constexpr int kDimTileVectors = 2;  // of head dimensions

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

// clang-format off: each builds on those before it
#include "cpu/kernels/factors_fp32.inl.h"
#include "cpu/kernels/rows.inl.h"
#include "cpu/kernels/tile.inl.h"
#include "cpu/kernels/forward.inl.h"
#include "cpu/kernels/probes.inl.h"
#include "cpu/kernels/table.inl.h"
// clang-format on

constexpr fovea::cpu::Kernels fovea::cpu::kScalarKernels = fovea::cpu::FOVEA_TARGET::table();

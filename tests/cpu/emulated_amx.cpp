// The kernels of AMX over portable vectors and emulated tile registers: their logic runs on machines without it.
#define FOVEA_TARGET emulated_amx
#define FOVEA_SCALAR_LANES 16
#define FOVEA_FOR_AMX

#include "emulated.h"
#include "tiles_emulated.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int kTileRows = 8;
constexpr int kTileVectors = 2;
constexpr int kDimTileRows = 6;
constexpr int kDimTileVectors = 4;
constexpr int kProductRows = 12;
constexpr int kProductVectors = 2;

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

#include "cpu/kernels/operands_bf16.inl.h"
#include "cpu/kernels/table_amx.inl.h"

constexpr fovea::cpu::Kernels fovea::cpu::kEmulatedAmxKernels = fovea::cpu::FOVEA_TARGET::amx_table();

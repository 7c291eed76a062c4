// The kernels with another stage between scaling and the maximum, over portable vectors: scores saturate at kCap.
#define FOVEA_TARGET softcap
#define FOVEA_SCALAR_LANES 8

#include "softcap_kernels.h"

#include "cpu/simd/vec_scalar.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

constexpr int kTileRows = 4;
constexpr int kTileVectors = 3;
constexpr int kDimTileRows = 6;
constexpr int kDimTileVectors = 2;

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

#include "cpu/kernels/factors_fp32.inl.h"
#include "cpu/kernels/table.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

// kCap tanh(x / kCap) of the scaled score x, and for one query and key another value: stages know where they are.
struct SoftcapScore {
  static Vec apply(const Shape& shape, Vec score, Place place) {
    const float cap = kCap / shape.size;
    for (int i = 0; i < kLanes; ++i) {
      score[i] = cap * __builtin_tanhf(score[i] / cap);
      if (position(shape, place, i) == kMovedQuery && place.key == kMovedKey) score[i] += kMoved / shape.size;
    }
    return score;
  }

  static Vec differentiate(const Shape& shape, Vec score, Vec weight, Place) {
    const float cap = kCap / shape.size;
    for (int i = 0; i < kLanes; ++i) {
      const float t = __builtin_tanhf(score[i] / cap);
      weight[i] *= 1 - t * t;
    }
    return weight;
  }

  static int64_t position(const Shape& shape, Place place, int lane) { return (place.row + lane) / shape.group; }
};

constexpr Kernels softcap_table() {
  Kernels t = table();
  t.forward = forward<SoftcapScore>;
  t.backward = backward<SoftcapScore>;
  return t;
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

constexpr fovea::cpu::Kernels fovea::cpu::kSoftcapKernels = fovea::cpu::FOVEA_TARGET::softcap_table();

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
constexpr int kProductRows = 6;
constexpr int kProductVectors = 2;

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

#include "cpu/kernels/operands_fp32.inl.h"
#include "cpu/kernels/table.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

// kCap tanh(x / kCap) of the scaled score x, and for one query and key another value: stages know where they are.
struct SoftcapScore {
  static Vec apply(const Shape& shape, Vec score, ScorePosition at) {
    const float cap = kCap / shape.scale_hi;
    for (int i = 0; i < kLanes; ++i) {
      score[i] = cap * __builtin_tanhf(score[i] / cap);
      const int64_t row = at.row + i / at.keys, key = at.key + i % at.keys;
      if (row / shape.group == kMovedQuery && key == kMovedKey) score[i] += kMoved / shape.scale_hi;
    }
    return score;
  }

  static Vec differentiate(const Shape& shape, Vec score, Vec probability, ScorePosition) {
    const float cap = kCap / shape.scale_hi;
    for (int i = 0; i < kLanes; ++i) {
      const float t = __builtin_tanhf(score[i] / cap);
      probability[i] *= 1 - t * t;
    }
    return probability;
  }
};

constexpr Kernels softcap_table() {
  Kernels t = table();
  t.forward = forward<SoftcapScore>;
  t.few_queries = few_queries<SoftcapScore>;
  t.backward = backward<SoftcapScore>;
  return t;
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET

constexpr fovea::cpu::Kernels fovea::cpu::kSoftcapKernels = fovea::cpu::FOVEA_TARGET::softcap_table();

// Combines partials over disjoint sets of keys. Per row: m = max lse_i, w_i = exp(lse_i - m),
// out = sum w_i out_i / sum w_i, lse = m + log(sum w_i).
#include <cmath>
#include <limits>

#include "attention/validate.h"
#include "core/check.h"
#include "fovea/attention.h"

namespace fovea {
namespace {

std::int64_t offset(const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t i) {
  return b * view.strides[0] + h * view.strides[1] + i * view.strides[2];
}

const float* row(const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t i) {
  return static_cast<const float*>(view.data) + offset(view, b, h, i);
}

float* row(const MutableTensorView& view, std::int64_t b, std::int64_t h, std::int64_t i) {
  return static_cast<float*>(view.data) + offset(view, b, h, i);
}

}  // namespace

void merge_partials(std::span<const PartialResult> partials, const MutableTensorView& out,
                    const MutableTensorView& lse) {
  core::guarded("merge_partials", [&] { core::validate(partials, out, lse, "merge_partials"); });
  const core::DefaultFloatingPoint mode;
  const Sizes& sizes = out.sizes;
  if (sizes[0] * sizes[1] * sizes[2] == 0) return;  // no row; the other sizes may be huge
  for (std::int64_t b = 0; b < sizes[0]; ++b) {
    for (std::int64_t h = 0; h < sizes[1]; ++h) {
      for (std::int64_t i = 0; i < sizes[2]; ++i) {
        constexpr float kNone = -std::numeric_limits<float>::infinity();  // lse of a fully masked row
        float largest = kNone;
        for (const auto& partial : partials) largest = std::fmax(largest, *row(partial.lse, b, h, i));
        double sum = 0;
        for (const auto& partial : partials) {
          const float partial_lse = *row(partial.lse, b, h, i);
          if (partial_lse != kNone) sum += std::exp(static_cast<double>(partial_lse) - largest);
        }
        for (std::int64_t c = 0; c < sizes[3]; ++c) {
          double value = 0;
          for (const auto& partial : partials) {
            const float partial_lse = *row(partial.lse, b, h, i);
            if (partial_lse != kNone)
              value += std::exp(static_cast<double>(partial_lse) - largest) * row(partial.out, b, h, i)[c];
          }
          row(out, b, h, i)[c] = sum == 0 ? 0.0f : static_cast<float>(value / sum);
        }
        *row(lse, b, h, i) = sum == 0 ? kNone : static_cast<float>(largest + std::log(sum));
      }
    }
  }
}

}  // namespace fovea

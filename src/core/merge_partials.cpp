// Joining attention over disjoint sets of keys. Per row: m = max lse, w_i = exp(lse_i - m), out = sum w_i out_i / sum
// w_i.
#include <cmath>
#include <limits>

#include "core/check.h"
#include "fovea/attention.h"

namespace fovea {
namespace {

[[noreturn]] void refuse(const char* argument, std::string problem, std::string got, std::string wanted) {
  core::fail({Status::invalid_argument,
              "merge_partials",
              argument,
              std::move(problem),
              std::move(got),
              std::move(wanted),
              {},
              {}});
}

void check(const char* argument, const TensorView& view, const Sizes& sizes) {
  if (view.sizes != sizes) refuse(argument, "sizes do not agree", core::to_string(view.sizes), core::to_string(sizes));
  if (view.dtype != DType::fp32 || view.device.kind != DeviceKind::cpu)
    refuse(argument, "element type or device", "not fp32 on the CPU", "fp32 on the CPU");
  if (view.data == nullptr && sizes[0] * sizes[1] * sizes[2] * sizes[3] != 0)
    refuse(argument, "null pointer", "null", "memory");
  if (sizes[3] > 1 && view.strides[3] != 1)
    refuse(argument, "the last dimension must be contiguous", core::to_string(view.strides), "strides[3] == 1");
}

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

void merge_partials(std::span<const PartialResult> parts, const MutableTensorView& out, const MutableTensorView& lse) {
  if (parts.empty()) refuse("parts", "nothing to merge", "0 parts", "1 or more");
  const Sizes sizes = out.sizes, rows{sizes[0], sizes[1], sizes[2], 1};
  check("out", out, sizes);
  check("lse", lse, rows);
  for (const auto& part : parts) {
    check("parts", part.out, sizes);
    check("parts", part.lse, rows);
  }
  for (std::int64_t b = 0; b < sizes[0]; ++b) {
    for (std::int64_t h = 0; h < sizes[1]; ++h) {
      for (std::int64_t i = 0; i < sizes[2]; ++i) {
        constexpr float kNone = -std::numeric_limits<float>::infinity();  // the lse of a row without keys
        float largest = kNone;
        for (const auto& part : parts) largest = std::fmax(largest, *row(part.lse, b, h, i));
        double sum = 0;
        for (const auto& part : parts) {
          const float part_lse = *row(part.lse, b, h, i);
          if (part_lse != kNone) sum += std::exp(static_cast<double>(part_lse) - largest);
        }
        for (std::int64_t c = 0; c < sizes[3]; ++c) {
          double value = 0;
          for (const auto& part : parts) {
            const float part_lse = *row(part.lse, b, h, i);
            if (part_lse != kNone)
              value += std::exp(static_cast<double>(part_lse) - largest) * row(part.out, b, h, i)[c];
          }
          row(out, b, h, i)[c] = sum == 0 ? 0.0f : static_cast<float>(value / sum);
        }
        *row(lse, b, h, i) = sum == 0 ? kNone : static_cast<float>(largest + std::log(sum));
      }
    }
  }
}

}  // namespace fovea

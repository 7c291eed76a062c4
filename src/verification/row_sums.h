// fp32 sums of rows, each times a factor, with the roundings that a plain evaluation chooses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fovea/tensor.h"

namespace fovea::verification {

enum class Rounding : std::uint8_t {
  products,  // every product, then every sum
  sums,      // every sum; products are exact
  // As Hopper's tensor cores do, which add 16 products to a sum. The exponent of a product is the sum of its factors'
  // exponents. All terms are cut two bits behind the last place of an fp32 number with the largest exponent. The new
  // sum is rounded toward zero (Khattak and Mikaitis, Accurate Models of NVIDIA Tensor Cores, arXiv:2512.07004).
  tensor_cores,
};

// Whether products of operands of this type may run on tensor cores.
inline bool may_use_tensor_cores(DeviceKind device, DType operands) {
  return device == DeviceKind::cuda && operands != DType::fp32;
}

class RowSums {
 public:
  static constexpr std::size_t kRows = 16;  // products that tensor cores add at once

  RowSums(std::int64_t count, Rounding rounding) : rounding_(rounding), sums_(static_cast<std::size_t>(count)) {}

  // `row` must stay as it is until finish(): rows are added when there are several.
  void add(float factor, const float* row) {
    factors_[waiting_] = factor;
    rows_[waiting_] = row;
    if (++waiting_ == kRows) finish();
  }
  // The sums of the rows so far; a caller may change them before it adds rows.
  std::vector<float>& finish();

 private:
  Rounding rounding_;
  std::vector<float> sums_;
  std::array<float, kRows> factors_;
  std::array<const float*, kRows> rows_;
  std::size_t waiting_ = 0;
};

}  // namespace fovea::verification

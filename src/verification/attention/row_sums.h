// fp32 sums of rows, each times a factor, with the roundings that a plain evaluation chooses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fovea::verification {

enum class Rounding : std::uint8_t {
  products,      // every product, then every sum
  sums,          // every sum; products are exact
  tensor_cores,  // as tensor cores do: 16 exact products are added to a sum, which is then rounded toward zero (Fasi et
                 // al., Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science 7:e330)
};

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

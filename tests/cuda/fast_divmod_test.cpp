// Division by a product and a shift, against division.
#include "cuda/device/fast_divmod.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace fovea::cuda {
namespace {

constexpr std::uint32_t kLargest = (std::uint32_t{1} << 31) - 1;

TEST(FastDivmod, EqualsDivision) {
  std::mt19937 random(7);
  std::vector<std::uint32_t> divisors = {kLargest, kLargest - 1, std::uint32_t{1} << 31};
  for (std::uint32_t d = 1; d <= 300; ++d) divisors.push_back(d);
  for (int bit = 9; bit < 31; ++bit)
    for (const int near : {-1, 0, 1}) divisors.push_back((std::uint32_t{1} << bit) + static_cast<std::uint32_t>(near));
  for (int i = 0; i < 300; ++i) divisors.push_back(static_cast<std::uint32_t>(random() % kLargest + 1));
  for (const std::uint32_t d : divisors) {
    const FastDivmod by = fast_divmod(d);
    for (int i = 0; i < 200; ++i) {
      const auto multiple = static_cast<std::uint32_t>(random() % (kLargest / d + 1) * d);
      for (const std::uint32_t n :
           {multiple, multiple - (multiple > 0), static_cast<std::uint32_t>(random() & kLargest), kLargest, 0u})
        ASSERT_EQ(quotient(n, by), n / d) << n << " / " << d;
    }
  }
}

}  // namespace
}  // namespace fovea::cuda

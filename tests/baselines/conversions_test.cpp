// Rows of floats become 16-bit elements in their own memory.
#include "baselines/conversions.h"

#include <gtest/gtest.h>

#include <vector>

namespace fovea::baselines {
namespace {

TEST(Conversions, NarrowInPlace) {
  std::vector<float> row(1500);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = 0.1f + static_cast<float>(i);
  std::vector<std::uint16_t> bits(row.size());
  narrow_row(bits.data(), DType::bf16, 0, row.data(), std::ssize(row));
  narrow_in_place(DType::bf16, row.data(), std::ssize(row));
  const auto* got = reinterpret_cast<const std::uint16_t*>(row.data());
  for (std::size_t i = 0; i < bits.size(); ++i) ASSERT_EQ(got[i], bits[i]) << i;
}

}  // namespace
}  // namespace fovea::baselines

// The counter-based random numbers against the published ones.
#include "core/random.h"

#include <gtest/gtest.h>

namespace fovea::core {
namespace {

// Known answers of Philox4x32-10 from the authors' library Random123 (kat_vectors).
TEST(Random, PhiloxGivesThePublishedNumbers) {
  EXPECT_EQ(philox(0, 0, 0), (RandomBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull), (RandomBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
            (RandomBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, NormalNumbersHaveTheirRange) {
  EXPECT_EQ(approximate_normal({0xffffffff, 0xffffffff, 0, 0}), 0);
  EXPECT_NEAR(approximate_normal({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}), 4.9, 0.002);
  EXPECT_NEAR(approximate_normal({0, 0, 0, 0}), -4.9, 0.002);
}

}  // namespace
}  // namespace fovea::core

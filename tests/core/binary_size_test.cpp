// Bytes with units.
#include "core/binary_size.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace fovea::core {
namespace {

TEST(BinarySize, TakesTheLargestUnitOfWhichThereIsOne) {
  EXPECT_EQ(binary_size(0), "0 B");
  EXPECT_EQ(binary_size(1023), "1023 B");
  EXPECT_EQ(binary_size(1024), "1.0 KiB");
  EXPECT_EQ(binary_size(786432), "768 KiB");
  EXPECT_EQ(binary_size((1 << 20) * 9 + (1 << 19)), "9.5 MiB");
  EXPECT_EQ(binary_size(std::int64_t{139} << 30), "139 GiB");
  EXPECT_EQ(binary_size(INT64_MAX), "8388608 TiB");
}

}  // namespace
}  // namespace fovea::core

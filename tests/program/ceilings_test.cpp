// The ceiling of a row: the probe is at least the best library product, or the row says that it is not.
#include "program/machine/ceilings.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace fovea::program {
namespace {

TEST(Ceiling, AProbeAboveTheProductIsNotRepeated) {
  const RowCeiling c = row_ceiling(2e11, 1.9e11, 1.8e11, []() -> double { throw std::logic_error("probed again"); });
  EXPECT_EQ(c.flops_per_s, 2e11);
  EXPECT_EQ(c.probe_before, 2e11);
  EXPECT_EQ(c.probe_after, 1.9e11);
  EXPECT_EQ(c.best_product, 1.8e11);
  EXPECT_FALSE(is_low_probe(c, 1.99e11));
  EXPECT_TRUE(is_low_probe(c, 2.01e11)) << "a share above 1";
}

TEST(Ceiling, AProbeThatTheProductBeatsIsRepeated) {
  int probes = 0;
  const RowCeiling c = row_ceiling(1.7e11, 1.91e11, 2.11e11, [&] { return ++probes == 2 ? 2.2e11 : 1.5e11; });
  EXPECT_EQ(probes, 2) << "enough once the product is reached";
  EXPECT_EQ(c.probe_after, 2.2e11);
  EXPECT_EQ(c.flops_per_s, 2.2e11);
  EXPECT_FALSE(is_low_probe(c, 1e11));
}

TEST(Ceiling, AProbeThatStaysBelowTheProductIsNoCeiling) {
  int probes = 0;
  const RowCeiling c = row_ceiling(1.7e11, 1.91e11, 2.11e11, [&] { return 1.9e11 + 1e9 * ++probes; });
  EXPECT_EQ(probes, 3);
  EXPECT_EQ(c.probe_before, 1.7e11);
  EXPECT_EQ(c.probe_after, 1.93e11) << "the best of them";
  EXPECT_EQ(c.flops_per_s, 2.11e11) << "shares are of the larger";
  EXPECT_TRUE(is_low_probe(c, 1e11));
}

TEST(Ceiling, WithoutAProductTheProbeIsNotRepeated) {
  const RowCeiling c = row_ceiling(1e11, 1.1e11, 0, []() -> double { throw std::logic_error("probed again"); });
  EXPECT_EQ(c.flops_per_s, 1.1e11);
  EXPECT_FALSE(is_low_probe(c, 1e11));
}

}  // namespace
}  // namespace fovea::program

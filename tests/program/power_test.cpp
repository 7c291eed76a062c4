// Energy counters of a made-up machine.
#include "program/machine/power.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "run_program.h"

namespace fovea::tests {
namespace {

class Power : public testing::Test {
 protected:
  void zone(const std::string& folder, const std::string& name, const std::string& energy) {
    std::filesystem::create_directories(folder_ / folder);
    write_text(folder_ / (folder + "/name"), name + "\n");
    write_text(folder_ / (folder + "/max_energy_range_uj"), "10000000\n");
    write_text(folder_ / (folder + "/energy_uj"), energy + "\n");
  }
  Folder folder_;
};

TEST_F(Power, IsUnknownWithoutCounters) {
  EXPECT_FALSE(program::EnergyCounter(folder_ / "none").joules());
  program::EnergyCounter energy(folder_ / "");
  program::PowerMeter meter(energy);
  meter.begin();
  usleep(20'000);
  meter.end();
  EXPECT_FALSE(meter.watts());
}

TEST_F(Power, CountsEachPackageOnceAndHandlesWraparound) {
  zone("intel-rapl:0", "package-0", "1000000");
  zone("intel-rapl:0:0", "core", "500000");
  zone("intel-rapl-mmio:0", "package-0", "1000000");
  zone("intel-rapl:1", "package-1", "9000000");
  program::EnergyCounter energy(folder_ / "");
  EXPECT_EQ(energy.joules(), 0);
  zone("intel-rapl:0", "package-0", "1500000");
  zone("intel-rapl-mmio:0", "package-0", "1500000");
  zone("intel-rapl:1", "package-1", "1000000");  // 10 joules are 0 again
  EXPECT_DOUBLE_EQ(energy.joules().value(), 2.5);
  EXPECT_DOUBLE_EQ(energy.joules().value(), 2.5);
}

TEST_F(Power, IsEnergyOverTheTimeOfTheTurns) {
  zone("intel-rapl:0", "package-0", "0");
  program::EnergyCounter energy(folder_ / "");
  program::PowerMeter meter(energy);
  meter.begin();
  usleep(20'000);
  zone("intel-rapl:0", "package-0", "1000000");
  meter.end();
  ASSERT_TRUE(meter.watts().has_value());
  EXPECT_GT(*meter.watts(), 0);
  EXPECT_LE(*meter.watts(), 1 / 0.02);
  zone("intel-rapl:0", "package-0", "9000000");  // another's turn
  const double before = *meter.watts();
  EXPECT_DOUBLE_EQ(*meter.watts(), before);
}

}  // namespace
}  // namespace fovea::tests

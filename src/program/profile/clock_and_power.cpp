// A CPU is asked by a short chain of additions, a GPU through its driver.
#include "program/profile/clock_and_power.h"

#include "cuda/measure/device_facts.h"
#include "program/machine/machine.h"
#include "program/record/record.h"

namespace fovea::program {
namespace {

std::optional<double> median_of(const std::vector<double>& values) {
  if (values.empty()) return {};
  return statistics_of(values).median;
}

}  // namespace

void ClockAndPower::begin() {
  if (device_ == DeviceKind::cpu) meter_.begin();
}

void ClockAndPower::end() {
  if (device_ == DeviceKind::cpu) {
    meter_.end();
    if (const double clock = measured_clock_mhz(); clock > 0) clocks_.push_back(clock);
    return;
  }
  const cuda::DeviceState state = cuda::device_state();
  if (state.clock_mhz) clocks_.push_back(*state.clock_mhz);
  if (state.power_w) powers_.push_back(*state.power_w);
}

std::optional<double> ClockAndPower::clock_mhz() const { return median_of(clocks_); }

std::optional<double> ClockAndPower::power_w() const {
  return device_ == DeviceKind::cpu ? meter_.watts() : median_of(powers_);
}

}  // namespace fovea::program

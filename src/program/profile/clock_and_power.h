// Clock and power of a device while an implementation makes its steps.
#pragma once

#include <optional>
#include <vector>

#include "fovea/tensor.h"
#include "program/machine/power.h"

namespace fovea::program {

class ClockAndPower {
 public:
  ClockAndPower(DeviceKind device, EnergyCounter& energy) : device_(device), meter_(energy) {}

  void begin();  // of a step
  void end();

  // Medians of what was read after each step, and on a CPU the mean power of the steps. The driver of a GPU averages
  // power over a time of its own, so that implementations in turns get similar values. Absent where nothing tells them.
  std::optional<double> clock_mhz() const;
  std::optional<double> power_w() const;

 private:
  DeviceKind device_;
  PowerMeter meter_;
  std::vector<double> clocks_, powers_;
};

}  // namespace fovea::program

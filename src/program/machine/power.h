// Power of the processor's packages, by the energy counters that the system may show (RAPL).
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace fovea::program {

class EnergyCounter {
 public:
  explicit EnergyCounter(const std::string& folder = "/sys/class/powercap");

  // Joules of all packages since the counter was made; nothing where the system does not tell.
  std::optional<double> joules();

 private:
  struct Package {
    std::string name, file;
    double range, last;  // microjoules; at `range` the counter starts again from 0
  };
  std::vector<Package> packages_;
  double microjoules_ = 0;
};

// Average power over the turns of one contender.
class PowerMeter {
 public:
  explicit PowerMeter(EnergyCounter& energy) : energy_(&energy) {}
  void begin();
  void end();
  std::optional<double> watts() const;  // nothing where the turns were too short to tell

 private:
  EnergyCounter* energy_;
  std::optional<double> before_;
  std::chrono::steady_clock::time_point start_;
  double joules_ = 0, seconds_ = 0;
};

}  // namespace fovea::program

// Power of the processor's packages, from RAPL energy counters if the system shows them.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace fovea::program {

class EnergyCounter {
 public:
  explicit EnergyCounter(const std::string& folder = "/sys/class/powercap");

  // Joules of all packages since this object was constructed; nullopt without counters.
  std::optional<double> joules();

 private:
  struct Package {
    std::string name, file;
    double range, last;  // microjoules; the counter wraps to 0 at `range`
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
  std::optional<double> watts() const;  // nullopt if the turns were too short

 private:
  EnergyCounter* energy_;
  std::optional<double> before_;
  std::chrono::steady_clock::time_point start_;
  double joules_ = 0, seconds_ = 0;
};

}  // namespace fovea::program

// Reads the energy counters. Only packages count: they include cores and memory controllers.
#include "program/machine/power.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace fovea::program {
namespace {

namespace fs = std::filesystem;

constexpr double kShortest = 0.01;  // counters advance about once per millisecond, so shorter times are too inaccurate

std::optional<double> number_in(const std::string& path) {
  std::ifstream file(path);
  double value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

std::string name_of(const fs::path& zone) {
  std::ifstream file(zone / "name");
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace

EnergyCounter::EnergyCounter(const std::string& folder) {
  std::error_code none;
  for (const auto& zone : fs::directory_iterator(folder, none)) {
    const std::string name = name_of(zone.path()), file = (zone.path() / "energy_uj").string();
    // A package may appear twice: through its registers (MSR) and through its memory interface (MMIO).
    const bool known = std::any_of(packages_.begin(), packages_.end(), [&](const auto& p) { return p.name == name; });
    if (known || !name.starts_with("package-")) continue;
    const auto now = number_in(file), range = number_in((zone.path() / "max_energy_range_uj").string());
    if (now && range) packages_.push_back({name, file, *range, *now});
  }
}

std::optional<double> EnergyCounter::joules() {
  if (packages_.empty()) return std::nullopt;
  for (Package& package : packages_) {
    const auto now = number_in(package.file);
    if (!now) return std::nullopt;
    microjoules_ += *now - package.last + (*now < package.last ? package.range : 0);
    package.last = *now;
  }
  return microjoules_ / 1e6;
}

void PowerMeter::begin() {
  before_ = energy_->joules();
  start_ = std::chrono::steady_clock::now();
}

void PowerMeter::end() {
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
  const auto after = energy_->joules();
  if (!before_ || !after) return;
  joules_ += *after - *before_;
  seconds_ += took.count();
}

std::optional<double> PowerMeter::watts() const {
  if (seconds_ < kShortest) return std::nullopt;
  return joules_ / seconds_;
}

}  // namespace fovea::program

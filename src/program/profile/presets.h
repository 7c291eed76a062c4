// Presets of fovea profile: the settings of a published profile.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::program {

struct ProfileScale {
  std::int64_t batch = 0, context = 0, warm_up = 0, steps = 0;
};

struct ProfilePreset {
  std::string name;
  std::vector<std::string> models;
  ProfileScale full, quick;  // as published; for minutes on two cores
  const ProfileScale& at(std::string_view scale) const { return scale == "full" ? full : quick; }
};

// Throws Error(invalid_argument) with the known names.
const ProfilePreset& profile_preset(const std::string& name);

}  // namespace fovea::program

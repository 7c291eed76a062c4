// The table of presets.
#include "program/profile/presets.h"

#include "core/check.h"

namespace fovea::program {

const ProfilePreset& profile_preset(const std::string& name) {
  static const ProfilePreset report_d1{
      .name = "report-d1",
      .models = {"report-d1:sm", "report-d1:md", "report-d1:lg"},
      .full = {.batch = 2, .context = 512, .warm_up = 5, .steps = 10},
      .quick = {.batch = 1, .context = 128, .warm_up = 2, .steps = 5},
  };
  if (name == report_d1.name) return report_d1;
  core::fail({.status = Status::invalid_argument,
              .argument = "--preset",
              .problem = "there is no preset of this name",
              .got = name,
              .wanted = report_d1.name,
              .hint = "`fovea bench --preset` has those of problems"});
}

}  // namespace fovea::program

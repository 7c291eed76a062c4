// How many processors this process may use.
#pragma once

#include <string>

namespace fovea::core {

// The least of the affinity mask and the control group's quota, at least 1. Read once.
int available_processors();

// Whole processors that a control group's quota grants, rounded down, at least 1; 0 if it sets no limit. `membership`
// is the path of /proc/self/cgroup, `mount` that of /sys/fs/cgroup; versions 1 and 2.
int control_group_processors(const std::string& membership, const std::string& mount);

}  // namespace fovea::core

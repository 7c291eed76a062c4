// How many processors this process may use.
#pragma once

#include <string>
#include <string_view>

namespace fovea::core {

// The least of the affinity mask, as it was when the library was loaded, and the control group's quota, at least 1.
// Read once.
int available_processors();

// Gives the calling thread the affinity mask of that time.
void run_on_all_processors();

// What FOVEA_THREADS says. Throws Error for what is no number of 1 or more.
int thread_count_of(std::string_view text);

// Whole processors that a control group's quota grants, rounded down, at least 1; 0 if it sets no limit. `membership`
// is the path of /proc/self/cgroup, `mount` that of /sys/fs/cgroup; versions 1 and 2.
int control_group_processors(const std::string& membership, const std::string& mount);

}  // namespace fovea::core

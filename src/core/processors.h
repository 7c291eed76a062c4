// The number of processors that this process may use.
#pragma once

#include <string>
#include <string_view>

namespace fovea::core {

// The smaller of the affinity mask's processors and the control group's quota, at least 1. Both are read once; the mask
// while the library is loaded.
int available_processors();

// Sets the calling thread's affinity to the mask that was read while the library was loaded.
void run_on_all_processors();

// The value of FOVEA_THREADS. Throws Error unless the text is a number of at least 1.
int thread_count_of(std::string_view text);

// Processors that a control group's quota grants, rounded down, at least 1; 0 if there is no limit. `membership` is the
// path of /proc/self/cgroup, `mount` is the path of /sys/fs/cgroup. Reads cgroup versions 1 and 2.
int control_group_processors(const std::string& membership, const std::string& mount);

}  // namespace fovea::core

// Counts the kills of the system's out-of-memory killer, to distinguish them from other kills.
#pragma once

#include <cstdint>
#include <string>

namespace fovea::program {

// Kills in our control group or, if that cannot be read, on the whole machine; 0 if neither is known. A count that rose
// while a process lived is evidence. `root` is prepended to /proc and /sys.
std::int64_t oom_kills(const std::string& root = {});

}  // namespace fovea::program

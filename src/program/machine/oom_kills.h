// How often the system's out-of-memory killer has struck: the evidence that tells its kills from anybody else's.
#pragma once

#include <cstdint>
#include <string>

namespace fovea::program {

// Kills counted for our control group, or where that cannot be read for the whole machine; 0 where neither is told.
// A count that has risen while a process lived is evidence. `root` stands before /proc and /sys.
std::int64_t oom_kills(const std::string& root = {});

}  // namespace fovea::program

// The program's word `flash`: the implementation that the library chooses for a call that names none.
#pragma once

#include <string>

namespace fovea::program {

inline constexpr const char* kFlash = "flash";

// What a call names for a requested implementation.
inline std::string asked_of_library(const std::string& requested) { return requested == kFlash ? "" : requested; }

}  // namespace fovea::program

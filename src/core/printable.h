// Makes foreign text safe for a terminal: control characters are printed as escapes.
#pragma once

#include <string>
#include <string_view>

namespace fovea::core {

std::string printable(std::string_view text);        // also escapes line ends
std::string printable_lines(std::string_view text);  // keeps line ends

}  // namespace fovea::core

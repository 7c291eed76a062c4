// Text of others, made fit for a terminal: its control characters become visible instead of obeyed.
#pragma once

#include <string>
#include <string_view>

namespace fovea::core {

std::string printable(std::string_view text);        // of one line: its ends of lines become \n too
std::string printable_lines(std::string_view text);  // keeps ends of lines

}  // namespace fovea::core

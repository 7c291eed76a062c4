// Text for a terminal of 80 columns: wrapped lines and aligned columns.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::program {

inline constexpr std::size_t kTerminalColumns = 80;

// Columns of the terminal that stderr is. Some terminals report 0; then, and elsewhere, 80.
std::size_t terminal_width();

// Columns on the screen: UTF-8 continuation bytes and escape sequences take none.
std::size_t columns_of(std::string_view text);

// Breaks lines of more than 80 columns at spaces. Lines after a break start with `indent` spaces. The first line has
// `taken` columns less. A word that is longer than a line stays whole.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t taken = 0);

// The first columns of a text.
std::string cut_to(std::string_view text, std::size_t columns);

// Columns padded to their widest cell; the last column wraps. The first row is the header of a table that has one.
std::string aligned(const std::vector<std::vector<std::string>>& rows);

}  // namespace fovea::program

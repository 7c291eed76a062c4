// Plain tables for people: problems down, implementations across, the best time marked, failures as words.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "program/record/record.h"

namespace fovea::program {

// "1.234 ms", "56.78 us": four significant digits.
std::string time_text(double seconds);

// Columns padded to their widest cell; the first row is the header. Widths count characters, not bytes.
std::string aligned(const std::vector<std::vector<std::string>>& rows);

// The problem lines without the words that all of them share, and those shared words.
struct ShortLines {
  std::string common;
  std::vector<std::string> lines;
};
ShortLines shorten(const std::vector<std::string>& lines);

// The table that ends a bench. `baselines` (problem -> implementation) adds each time's ratio to the one of its
// problem; `colour` sets the head and the fastest in bold.
std::string bench_table(const std::vector<Row>& rows, const std::map<std::string, std::string>& baselines, bool colour);

// Whether output on this stream may hold colour: a terminal, NO_COLOR unset, TERM not dumb.
bool colour_wanted(int descriptor);

}  // namespace fovea::program

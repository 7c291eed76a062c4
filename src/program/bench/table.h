// Plain tables: one row per problem, one column per implementation, the best time marked, failures as words.
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

// The problem lines without their common words, and the common words.
struct ShortLines {
  std::string common;
  std::vector<std::string> lines;
};
ShortLines shorten(const std::vector<std::string>& lines);

// The table at the end of a bench. `baselines` (problem -> implementation) adds the ratio of each time to its problem's
// baseline. `colour` prints the header and the fastest times in bold.
std::string bench_table(const std::vector<Row>& rows, const std::map<std::string, std::string>& baselines, bool colour);

// Whether output to this descriptor may have colour: it is a terminal, NO_COLOR is unset, TERM is not dumb.
bool colour_wanted(int descriptor);

}  // namespace fovea::program

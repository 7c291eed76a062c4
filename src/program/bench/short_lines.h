// Problem lines for people: without the words that the lines of a table share, and without those that say nothing.
#pragma once

#include <string>
#include <vector>

namespace fovea::program {

struct ShortLines {
  std::string common;              // the words that all lines share, without default values
  std::vector<std::string> lines;  // the words of each line that differ, without default values; or "this problem"
  std::vector<std::string> keys;   // the keys that differ
  std::vector<std::vector<std::string>> values;  // of each line: the value of every key; empty where it has none
};
ShortLines shorten(const std::vector<std::string>& lines);

// The line without words that have the value they would have if they were left out. It parses to the same problem.
std::string short_line(const std::string& line);

}  // namespace fovea::program

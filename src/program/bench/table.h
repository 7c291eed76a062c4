// The table of a bench: one row per problem, one column per implementation, the best time marked, failures as words.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "program/record/record.h"

namespace fovea::program {

// "1.234 ms", "56.78 us": four significant digits.
std::string time_text(double seconds);

// What the table of a bench shows beside the rows.
struct TableFacts {
  std::map<std::string, std::string> baselines = {};  // problem -> implementation; adds "(1.20×)" to each time
  // The implementations that the name `flash` became, with the numbers of problems; empty if it was not asked for.
  std::map<std::string, int> flash = {};
};

// One row per problem, one column per implementation. On more than 80 columns, problem keys become titles, then the
// implementations are split into several tables.
using Cells = std::vector<std::vector<std::string>>;
struct BenchTable {
  std::string common;             // the words that all problems share
  std::vector<std::string> keys;  // the keys that differ among them
  std::vector<std::string> implementations;
  Cells values;  // [problem][key]
  Cells times;   // [problem][implementation]: "1.234 ms *"
  std::string legend;
};
BenchTable bench_table(const std::vector<Row>& rows, const TableFacts& facts);

std::string terminal_text(const BenchTable& table, bool colour);
std::string markdown(const BenchTable& table);
// Times in seconds, one line per row of the records.
std::string csv(const std::vector<Row>& rows);

inline constexpr std::string_view kBestMark = " *";

// Whether output to this descriptor may have colour: it is a terminal, NO_COLOR is unset, TERM is not dumb.
bool colour_wanted(int descriptor);

}  // namespace fovea::program

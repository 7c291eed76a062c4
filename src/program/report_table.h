// Tables of a report: built once, printed as Markdown, CSV and HTML.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::program {

enum class Emphasis : std::uint8_t {
  none,
  best,   // bold
  loss,   // slower than the baseline
  muted,  // not ranked, or not measured here
  word,   // a status in place of a figure
};

struct Cell {
  std::string text;
  Emphasis emphasis = Emphasis::none;
  std::string detail = {};                                  // second, smaller line
  std::string note = {};                                    // shown while the pointer rests on the cell
  double value = std::numeric_limits<double>::quiet_NaN();  // full precision: for sorting and for CSV
};

struct Column {
  std::string head;
  std::string unit = {};
  bool number = true;  // right-aligned
};

struct Table {
  std::string id;  // unique in the report; file name of its CSV
  std::string title;
  std::string conditions;  // the line under it
  std::vector<Column> columns = {};
  std::vector<std::vector<Cell>> rows = {};
};

std::string to_markdown(const Table& table);
std::string to_csv(const Table& table);  // figures in full precision, words where there is none
std::string to_html(const Table& table);

std::string escape_html(std::string_view text);
std::string escape_csv(std::string_view text);

// So many significant digits, never an exponent: 0.0123, 1.23, 12.3, 1235.
std::string format_figure(double value, int digits = 3);
std::string format_milliseconds(double seconds, int digits = 3);
std::string format_bytes(double bytes);       // 10^6 bytes are 1 MB
std::string format_ratio(double ratio);       // 1.93x
std::string format_rate(double flops_per_s);  // 56.1 GFLOP/s

}  // namespace fovea::program

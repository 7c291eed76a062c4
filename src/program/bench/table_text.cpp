// The table of a bench as text: for a terminal, as Markdown, as CSV.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "program/bench/table.h"
#include "program/terminal_text.h"

namespace fovea::program {
namespace {

using Columns = std::vector<std::size_t>;

std::string bold(const std::string& text, bool colour) { return colour ? "\033[1m" + text + "\033[0m" : text; }

bool is_best(const std::string& time) {
  return time.size() > kBestMark.size() && std::string_view(time).substr(time.size() - kBestMark.size()) == kBestMark;
}

std::size_t width_of(const Cells& cells, std::size_t column, const std::string& head) {
  std::size_t width = columns_of(head);
  for (const auto& row : cells) width = std::max(width, columns_of(row[column]));
  return width + 2;
}

// Which keys are titles, which are columns, and which implementations each table holds.
struct Arrangement {
  Columns titles, keys;
  std::vector<Columns> tables;
};

std::size_t distinct(const BenchTable& table, std::size_t key) {
  std::set<std::string> values;
  for (const auto& row : table.values) values.insert(row[key]);
  return values.size();
}

Arrangement arranged(const BenchTable& table) {
  Arrangement result;
  std::vector<std::size_t> key_widths, time_widths;
  for (std::size_t n = 0; n < table.keys.size(); ++n) key_widths.push_back(width_of(table.values, n, table.keys[n]));
  for (std::size_t n = 0; n < table.implementations.size(); ++n)
    time_widths.push_back(width_of(table.times, n, table.implementations[n]));
  result.keys.resize(table.keys.size());
  std::iota(result.keys.begin(), result.keys.end(), std::size_t{0});
  std::size_t left = std::accumulate(key_widths.begin(), key_widths.end(), std::size_t{0});
  const std::size_t times = std::accumulate(time_widths.begin(), time_widths.end(), std::size_t{0});
  // The widths here include two spaces after the last column. Keys become titles, those of few values first, if the
  // times then fit beside the last key, or if the keys alone take half the line.
  const std::size_t narrowest = key_widths.empty() ? 0 : *std::min_element(key_widths.begin(), key_widths.end());
  const bool fits = narrowest + times <= kTerminalColumns + 2;
  while (result.keys.size() > 1 && (fits ? left + times > kTerminalColumns + 2 : left > kTerminalColumns / 2)) {
    const auto fewest = std::min_element(result.keys.begin(), result.keys.end(), [&](std::size_t a, std::size_t b) {
      return distinct(table, a) < distinct(table, b);
    });
    left -= key_widths[*fewest];
    result.titles.push_back(*fewest);
    result.keys.erase(fewest);
  }
  std::sort(result.titles.begin(), result.titles.end());
  std::size_t used = kTerminalColumns + 3;
  for (std::size_t n = 0; n < time_widths.size(); ++n) {
    if (used + time_widths[n] > kTerminalColumns + 2) {
      result.tables.emplace_back();
      used = left;
    }
    result.tables.back().push_back(n);
    used += time_widths[n];
  }
  return result;
}

std::string title_of(const BenchTable& table, const Columns& keys, std::size_t row) {
  std::string text;
  for (const std::size_t key : keys) {
    if (table.values[row][key].empty()) continue;
    text += (text.empty() ? "" : " ") + table.keys[key] + "=" + table.values[row][key];
  }
  return text;
}

// Of these implementations, those that have a time in the rows with this title.
Columns with_times(const BenchTable& table, const Arrangement& how, const Columns& all, const std::string& title) {
  Columns some;
  for (const std::size_t n : all) {
    for (std::size_t row = 0; row < table.times.size(); ++row) {
      if (table.times[row][n].empty() || title_of(table, how.titles, row) != title) continue;
      some.push_back(n);
      break;
    }
  }
  return some;
}

// The rows with this title, after a header.
Cells block_of(const BenchTable& table, const Arrangement& how, const Columns& all, const std::string& title,
               bool colour) {
  const Columns times = with_times(table, how, all, title);
  Cells cells(1);
  for (const std::size_t key : how.keys) cells[0].push_back(bold(table.keys[key], colour));
  for (const std::size_t n : times) cells[0].push_back(bold(table.implementations[n], colour));
  for (std::size_t row = 0; row < table.times.size(); ++row) {
    if (title_of(table, how.titles, row) != title) continue;
    std::vector<std::string>& line = cells.emplace_back();
    for (const std::size_t key : how.keys) line.push_back(table.values[row][key]);
    for (const std::size_t n : times) {
      const std::string& time = table.times[row][n];
      line.push_back(is_best(time) ? bold(time, colour) : time);
    }
  }
  return cells;
}

std::string joined(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) {
    line += " ";
    for (const char c : cell) line += c == '|' ? std::string("\\|") : std::string(1, c);
    line += " |";
  }
  return line + "\n";
}

// A CSV field: quoted if it must be.
std::string field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::string terminal_text(const BenchTable& table, bool colour) {
  const Arrangement how = arranged(table);
  std::vector<std::string> titles;
  for (std::size_t row = 0; row < table.times.size(); ++row) {
    const std::string title = title_of(table, how.titles, row);
    if (std::find(titles.begin(), titles.end(), title) == titles.end()) titles.push_back(title);
  }
  std::string text = table.common.empty() ? "" : wrapped("all: " + table.common, 5) + "\n";
  for (const std::string& title : titles) {
    if (!how.titles.empty()) text += (text.empty() ? "" : "\n") + wrapped(title, 2) + "\n";
    for (std::size_t n = 0; n < how.tables.size(); ++n)
      text += (n > 0 ? "\n" : "") + aligned(block_of(table, how, how.tables[n], title, colour));
  }
  return text + (titles.size() > 1 || how.tables.size() > 1 ? "\n" : "") + table.legend;
}

std::string markdown(const BenchTable& table) {
  std::vector<std::string> head = table.keys;
  head.insert(head.end(), table.implementations.begin(), table.implementations.end());
  std::string text = table.common.empty() ? "" : "All: `" + table.common + "`\n\n";
  text += joined(head) + joined(std::vector<std::string>(head.size(), "---"));
  for (std::size_t row = 0; row < table.times.size(); ++row) {
    std::vector<std::string> line = table.values[row];
    line.insert(line.end(), table.times[row].begin(), table.times[row].end());
    text += joined(line);
  }
  text += "\n";
  for (std::size_t start = 0; start < table.legend.size();) {  // a list, so that lines stay lines
    const std::size_t end = table.legend.find('\n', start);
    text += "- `" + table.legend.substr(start, end - start) + "`\n";
    start = end + 1;
  }
  return text;
}

std::string csv(const std::vector<Row>& rows) {
  std::string text = "problem,implementation,threads,status,median_s,q1_s,q3_s,samples,flags\n";
  for (const Row& row : rows) {
    std::string flags;
    for (const std::string& flag : row.flags) flags += (flags.empty() ? "" : " ") + flag;
    const std::string times = row.time_s ? fmt::format("{:.6g},{:.6g},{:.6g},{}", row.time_s->median, row.time_s->q1,
                                                       row.time_s->q3, row.time_s->n)
                                         : ",,,";
    text += field(row.problem) + "," + field(row.impl) + fmt::format(",{},", row.threads) + row.status + "," + times +
            "," + flags + "\n";
  }
  return text;
}

}  // namespace fovea::program

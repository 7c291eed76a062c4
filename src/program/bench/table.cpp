// Text tables.
#include "program/bench/table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>

#include "core/printable.h"
#include "fovea/error.h"
#include "program/bench/ranking.h"
#include "verification/problem_line.h"

namespace fovea::program {
namespace {

// Width on the screen: UTF-8 continuation bytes and escape sequences have no width.
std::size_t width_of(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033') {
      i = std::min(text.find('m', i), text.size());
    } else if ((static_cast<unsigned char>(text[i]) & 0xc0u) != 0x80u) {
      ++width;
    }
  }
  return width;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

struct Grid {
  std::vector<std::string> problems, implementations;  // in order of appearance
  std::map<std::pair<std::string, std::string>, const Row*> cells;
};

Grid grid_of(const std::vector<Row>& rows) {
  Grid grid;
  const auto remember = [](std::vector<std::string>& list, const std::string& word) {
    if (std::find(list.begin(), list.end(), word) == list.end()) list.push_back(word);
  };
  for (const Row& row : rows) {
    remember(grid.problems, row.problem);
    remember(grid.implementations, row.impl);
    grid.cells[{row.problem, row.impl}] = &row;
  }
  return grid;
}

const Row* cell_of(const Grid& grid, const std::string& problem, const std::string& implementation) {
  const auto found = grid.cells.find({problem, implementation});
  return found == grid.cells.end() ? nullptr : found->second;
}

std::string bold(const std::string& text, bool colour) { return colour ? "\033[1m" + text + "\033[0m" : text; }

std::string cell_text(const Row* row, const Row* base, bool best, bool colour) {
  if (row == nullptr) return "";
  if (row->status != "ok") return row->status == "oom" ? "OOM" : row->status;
  std::string text = time_text(row->time_s->median);
  if (base != nullptr && is_timed(*base) && !base->has_flag("impossible"))
    text += fmt::format(" ({:.2f}x)", base->time_s->median / row->time_s->median);
  if (row->launches) {
    const std::optional<double> pooled = row->launches->pooled_beyond_s;
    text += fmt::format(" [+{}{}]", time_text(row->launches->beyond_s), pooled ? ", +" + time_text(*pooled) : "");
  }
  if (row->has_flag("impossible")) text += " impossible";
  if (row->has_flag("launch_bound")) text += " ^";
  if (row->has_flag("noisy")) text += " ~";
  if (row->has_flag("inaccurate")) text += " !";
  if (row->has_flag("low_probe")) text += " %";
  if (row->has_flag("host_bound")) text += " &";
  if (!best) return text;
  return bold(text + " *", colour);
}

// Explains the marks that occur in the rows.
std::string legend_of(const std::vector<Row>& rows) {
  const auto occurs = [&rows](std::string_view flag) {
    return std::any_of(rows.begin(), rows.end(), [flag](const Row& row) { return row.has_flag(flag); });
  };
  std::string text = "* clearly fastest";
  if (occurs("launch_bound")) text += "\n^ launch-bound: mostly the fixed cost of a call";
  if (occurs("noisy")) text += "\n~ noisy: the quartiles are more than 5 % of the median apart";
  if (occurs("inaccurate")) text += "\n! less accurate than this library must be";
  if (occurs("low_probe")) text += "\n% a library product, or the row itself, beat the probe of the ceiling";
  if (occurs("host_bound")) text += "\n& may include the time that the host took to enqueue";
  if (occurs("impossible")) text += "\nimpossible: faster than the peak rate of this processor allows";
  if (std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.launches.has_value(); }))
    text += "\n[+]: host time beyond the kernel launches; second value: with the library's workspace pool";
  return text + "\n";
}

}  // namespace

std::string time_text(double seconds) {
  const auto [factor, unit] = seconds < 1e-3 ? std::pair{1e6, "us"}
                              : seconds < 1  ? std::pair{1e3, "ms"}
                                             : std::pair{1.0, "s"};
  const double value = seconds * factor;
  return fmt::format("{:.{}f} {}", value, value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0, unit);
}

std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - width_of(row[i]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

namespace {

// The words of a problem line; `parsed` is set if this program knows the operation.
struct LineWords {
  explicit LineWords(const std::string& line) : words(words_of(line)) {
    try {
      parsed = verification::parse_case(line);
    } catch (const Error&) {  // an unknown line is shown as it is
    }
  }
  // The word of the key, or "".
  std::string word(const std::string& key) const {
    const auto found = std::find_if(words.begin(), words.end(), [&](const auto& one) { return key_of(one) == key; });
    return found == words.end() ? "" : *found;
  }
  // Whether the key's value follows from the line's other words.
  bool follows(const std::string& key) const {
    const core::Key* const known = parsed ? parsed->values.table().find(key) : nullptr;
    return known != nullptr && verification::is_fallback(*parsed, *known);
  }
  static std::string key_of(const std::string& word) { return word.substr(0, word.find('=')); }

  std::vector<std::string> words;
  std::optional<verification::Case> parsed;
};

std::vector<std::string> keys_of(const std::vector<LineWords>& lines) {
  std::vector<std::string> keys;
  for (const LineWords& line : lines) {
    for (const std::string& word : line.words) {
      if (std::find(keys.begin(), keys.end(), LineWords::key_of(word)) == keys.end())
        keys.push_back(LineWords::key_of(word));
    }
  }
  return keys;
}

}  // namespace

ShortLines shorten(const std::vector<std::string>& lines) {
  ShortLines result;
  result.lines.resize(lines.size());
  const std::vector<LineWords> taken(lines.begin(), lines.end());
  const auto append = [](std::string& text, const std::string& word) {
    if (!word.empty()) text += (text.empty() ? "" : " ") + word;
  };
  for (const std::string& key : keys_of(taken)) {
    const std::string first = taken.front().word(key);
    if (std::all_of(taken.begin(), taken.end(), [&](const auto& one) { return one.word(key) == first; })) {
      append(result.common, first);
      continue;
    }
    if (std::all_of(taken.begin(), taken.end(), [&](const auto& one) { return one.follows(key); })) continue;
    for (std::size_t i = 0; i < taken.size(); ++i) append(result.lines[i], taken[i].word(key));
  }
  for (auto& line : result.lines) {
    if (line.empty()) line = "this problem";
  }
  return result;
}

std::string bench_table(const std::vector<Row>& rows, const std::map<std::string, std::string>& baselines,
                        bool colour) {
  const Grid grid = grid_of(rows);
  const ShortLines labels = shorten(grid.problems);
  std::vector<std::vector<std::string>> table{{bold("problem", colour)}};
  for (const auto& name : grid.implementations) table[0].push_back(bold(core::printable(name), colour));
  for (std::size_t i = 0; i < grid.problems.size(); ++i) {
    std::vector<const Row*> rivals;
    const auto baseline = baselines.find(grid.problems[i]);
    const Row* const base = baseline == baselines.end() ? nullptr : cell_of(grid, grid.problems[i], baseline->second);
    for (const auto& name : grid.implementations) {
      if (const Row* const row = cell_of(grid, grid.problems[i], name)) rivals.push_back(row);
    }
    const Row* const best = fastest_of(rivals);
    std::vector<std::string> line{labels.lines[i]};
    for (const auto& name : grid.implementations) {
      const Row* const row = cell_of(grid, grid.problems[i], name);
      line.push_back(cell_text(row, base, row != nullptr && row == best, colour));
    }
    table.push_back(std::move(line));
  }
  return "all: " + labels.common + "\n" + aligned(table) + legend_of(rows);
}

bool colour_wanted(int descriptor) {
  const char* const refused = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  return isatty(descriptor) != 0 && (refused == nullptr || *refused == '\0') &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}

}  // namespace fovea::program

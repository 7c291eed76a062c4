// The cells of a table, from rows.
#include "program/bench/table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

#include "core/printable.h"
#include "program/bench/ranking.h"
#include "program/bench/short_lines.h"
#include "program/terminal_text.h"

namespace fovea::program {
namespace {

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

std::string cell_text(const Row* row, const Row* base, bool best) {
  if (row == nullptr) return "";
  if (row->status != "ok") return row->status == "oom" ? "OOM" : row->status;
  std::string text = time_text(row->time_s->median);
  if (base != nullptr && is_timed(*base) && !base->has_flag("impossible"))
    text += fmt::format(" ({:.2f}×)", base->time_s->median / row->time_s->median);
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
  return best ? text.append(kBestMark) : text;
}

// "flash: cpu.avx512 (30 problems), cpu.avx512_bf16 (4)"
std::string flash_text(const std::map<std::string, int>& flash) {
  if (flash.empty()) return "";
  std::string text;
  for (const auto& [name, problems] : flash)
    text += (text.empty() ? "flash: " : ", ") +
            (flash.size() == 1 ? name : fmt::format("{} in {} problem{}", name, problems, problems == 1 ? "" : "s"));
  return wrapped(text, 7) + "\n";
}

// Explains the marks that occur in the table. `starred`: a cell has the mark of the fastest.
std::string legend_of(const std::vector<Row>& rows, bool starred) {
  const auto occurs = [&rows](std::string_view flag) {
    return std::any_of(rows.begin(), rows.end(), [flag](const Row& row) { return row.has_flag(flag); });
  };
  std::string text = starred ? "\n* clearly fastest" : "";
  if (occurs("launch_bound")) text += "\n^ launch-bound: mostly the fixed cost of a call";
  if (occurs("noisy")) text += "\n~ noisy: the quartiles are more than 5 % of the median apart";
  if (occurs("inaccurate")) text += "\n! less accurate than this library must be";
  if (occurs("low_probe")) text += "\n% the measured peak rate was too low";
  if (occurs("host_bound")) text += "\n& may include the time that the host took to enqueue";
  if (occurs("impossible")) text += "\nimpossible: faster than the peak rate of this processor allows";
  if (std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.launches.has_value(); }))
    text += "\n[+]: host time beyond the kernel launches; second: with the library's pool";
  return text.empty() ? "" : text.substr(1) + "\n";
}

}  // namespace

std::string time_text(double seconds) {
  const auto [factor, unit] = seconds < 1e-3 ? std::pair{1e6, "us"}
                              : seconds < 1  ? std::pair{1e3, "ms"}
                                             : std::pair{1.0, "s"};
  const double value = seconds * factor;
  return fmt::format("{:.{}f} {}", value, value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0, unit);
}

BenchTable bench_table(const std::vector<Row>& rows, const TableFacts& facts) {
  const Grid grid = grid_of(rows);
  ShortLines labels = shorten(grid.problems);
  BenchTable table{.common = std::move(labels.common),
                   .keys = std::move(labels.keys),
                   .implementations = {},
                   .values = std::move(labels.values),
                   .times = {},
                   .legend = {}};
  bool starred = false;
  for (const auto& name : grid.implementations) table.implementations.push_back(core::printable(name));
  for (const std::string& problem : grid.problems) {
    std::vector<const Row*> rivals;
    const auto baseline = facts.baselines.find(problem);
    const Row* const base = baseline == facts.baselines.end() ? nullptr : cell_of(grid, problem, baseline->second);
    for (const auto& name : grid.implementations) {
      if (const Row* const row = cell_of(grid, problem, name)) rivals.push_back(row);
    }
    const Row* const best = fastest_of(rivals);
    std::vector<std::string>& times = table.times.emplace_back();
    for (const auto& name : grid.implementations) {
      const Row* const row = cell_of(grid, problem, name);
      times.push_back(cell_text(row, base, row != nullptr && row == best));
      starred = starred || (row != nullptr && row == best);
    }
  }
  table.legend = flash_text(facts.flash) + legend_of(rows, starred);
  return table;
}

bool colour_wanted(int descriptor) {
  const char* const refused = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  return isatty(descriptor) != 0 && (refused == nullptr || *refused == '\0') &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}

}  // namespace fovea::program

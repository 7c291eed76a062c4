// Rows of the timers cuda_graph and cuda_host, whose times are no times of a run.
#include "program/report_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "attention/mask.h"
#include "core/names.h"
#include "program/report_tables.h"

namespace fovea::program {
namespace {

constexpr const char* kGraphTitle = "A call in a graph of dependent calls";
constexpr const char* kGraphMeaning =
    "Up to 100 calls captured in a CUDA graph, each waiting for the one before: time of the graph on the device over "
    "the number of calls. Ratio: time of the fastest of the others over the own. ";
constexpr const char* kHostTitle = "How long a call keeps the host";
constexpr const char* kHostMeaning =
    "Time of the host until a call returns, whatever the device still does; not a time that the problem takes. Mean of "
    "many calls in a row; this library's with a workspace of the caller's, peers' with the Python that calls them. "
    "Launches: the same kernels enqueued without the call. Pool: with a workspace of the library's pool, where a call "
    "wants one. ";

// One way of timing on one machine.
struct Way {
  bool of_host = false;
  std::vector<Configuration> configurations;
  std::vector<const Measured*> rows;
};

auto order_of(const Configuration& one) {
  const AttentionProblem& p = one.problem.problem;
  return std::tuple(one.problem.pass, p.dtype, p.mask, p.dim_qk, p.batch * p.heads_q, p.batch, p.len_q, p.len_k);
}

std::map<std::string, Way> ways_of(const Study& study) {
  std::map<std::string, Way> ways;
  for (const Measured& one : study.calls) {
    Way& way = ways[fmt::format("{} {} {}", one.row.timer, one.row.machine, threads_of(one.row))];
    way.of_host = one.row.times_the_host();
    way.rows.push_back(&one);
    auto at = std::find_if(way.configurations.begin(), way.configurations.end(),
                           [&](const Configuration& other) { return other.problem == one.problem; });
    if (at == way.configurations.end()) at = way.configurations.insert(at, Configuration{one.problem, {}});
    at->by_implementation[one.row.impl] = &one;
  }
  for (auto& [key, way] : ways) {
    std::stable_sort(way.configurations.begin(), way.configurations.end(),
                     [](const auto& a, const auto& b) { return order_of(a) < order_of(b); });
  }
  return ways;
}

std::vector<std::string> names_of(const Study& study, const Way& way,
                                  const std::function<bool(const Measured&)>& wanted) {
  std::vector<std::string> names;
  for (const std::string& name : study.implementations) {
    if (std::any_of(way.rows.begin(), way.rows.end(),
                    [&](const Measured* one) { return one->row.impl == name && wanted(*one); }))
      names.push_back(name);
  }
  return names;
}

bool is_own(const Measured& one) { return one.role() == "flash"; }

std::string microseconds(double seconds) { return format_figure(seconds * 1e6); }

Cell text(std::string words) { return {std::move(words)}; }
Cell figure(std::string words, double value, Emphasis emphasis = Emphasis::none) {
  return {std::move(words), emphasis, {}, {}, value};
}
Cell integer(std::int64_t n) { return figure(std::to_string(n), static_cast<double>(n)); }

Cell call_cell(const Configuration& at, const std::string& name) {
  Cell cell = time_cell(at, name);
  const Measured* const one = at.find(name);
  if (one == nullptr || !one->timed()) return cell;
  const TimeStatistics& t = *one->row.time_s;
  cell.text = microseconds(t.median) + flag_marks(one->row);
  cell.detail = "\u00b1 " + format_figure((t.q3 - t.q1) / 2 * 1e6, 2);
  cell.value = t.median * 1e6;
  return cell;
}

// The fastest of the others at this problem; null if none was timed.
const Measured* best_other(const Configuration& at) {
  const Measured* best = nullptr;
  for (const auto& [name, one] : at.by_implementation) {
    if (is_own(*one) || !one->ranked()) continue;
    if (best == nullptr || one->seconds() < best->seconds()) best = one;
  }
  return best;
}

Cell ratio_cell(const Configuration& at, const std::string& name) {
  const Measured* const own = at.find(name);
  const Measured* const other = best_other(at);
  if (own == nullptr || !own->ranked() || other == nullptr) return {"-", Emphasis::muted};
  const double ratio = other->seconds() / own->seconds();
  const bool apart = told_apart(own->row, other->row);
  Cell cell = figure(format_ratio(ratio), ratio,
                     !apart      ? Emphasis::muted
                     : ratio < 1 ? Emphasis::loss
                                 : Emphasis::none);
  cell.note = "over " + other->row.impl;
  return cell;
}

std::vector<Cell> launch_cells(const Configuration& at, const std::string& name) {
  const Measured* const one = at.find(name);
  const bool known = one != nullptr && one->timed() && one->row.launches;
  const auto cell = [](std::optional<double> seconds) {
    return seconds ? figure(microseconds(*seconds), *seconds * 1e6) : Cell{"-", Emphasis::muted};
  };
  if (!known) return {cell({}), cell({}), cell({})};
  const LaunchShare& share = *one->row.launches;
  return {cell(share.median_s), cell(share.beyond_s), cell(share.pooled_beyond_s)};
}

Table table_of(const Study& study, const Way& way) {
  const auto present = names_of(study, way, [](const Measured&) { return true; });
  const auto launching = names_of(study, way, [](const Measured& one) { return one.row.launches.has_value(); });
  const auto own = names_of(study, way, [&](const Measured& one) { return is_own(one) && !way.of_host; });
  Table table{way.of_host ? "host-of-a-call" : "call-in-a-graph",
              way.of_host ? kHostTitle : kGraphTitle,
              std::string(way.of_host ? kHostMeaning : kGraphMeaning) + conditions_of(way.rows) + ".",
              {{"pass", {}, false}, {"type", {}, false}, {"mask", {}, false}, {"d"}, {"batch"}, {"heads"}, {"length"}}};
  for (const auto& name : present) table.columns.push_back({name, "us"});
  for (const auto& name : own) table.columns.push_back({name, "over the fastest other"});
  for (const auto& name : launching) {
    table.columns.push_back({name, "launches, us"});
    table.columns.push_back({name, "beyond the launches, us"});
    table.columns.push_back({name, "beyond them with the pool, us"});
  }
  for (const Configuration& at : way.configurations) {
    const AttentionProblem& p = at.problem.problem;
    std::vector<Cell> row{text(word_of(at.problem.pass)),
                          text(std::string(core::name_of(p.dtype))),
                          text(core::text_of(p.mask)),
                          integer(p.dim_qk),
                          integer(p.batch),
                          integer(p.heads_q),
                          figure(length_of(at.problem), static_cast<double>(p.len_q))};
    for (const auto& name : present) row.push_back(call_cell(at, name));
    for (const auto& name : own) row.push_back(ratio_cell(at, name));
    for (const auto& name : launching) {
      for (Cell& cell : launch_cells(at, name)) row.push_back(std::move(cell));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string count_of(std::size_t n) { return fmt::format("{} cell{}", n, n == 1 ? "" : "s"); }

std::string said_of_host(const Way& way, const std::string& name) {
  double most = 0, most_beyond = -INFINITY, most_pooled = -INFINITY;
  const Measured* worst = nullptr;
  std::size_t cells = 0;
  for (const Measured* const one : way.rows) {
    if (one->row.impl != name || !one->timed()) continue;
    ++cells;
    most = std::max(most, one->seconds());
    if (!one->row.launches) continue;
    most_pooled = std::max(most_pooled, one->row.launches->pooled_beyond_s.value_or(-INFINITY));
    if (one->row.launches->beyond_s <= most_beyond) continue;
    most_beyond = one->row.launches->beyond_s;
    worst = one;
  }
  if (cells == 0) return "";
  std::string said =
      fmt::format("A call of {} keeps the host at most {} us in {}", name, microseconds(most), count_of(cells));
  if (worst != nullptr)
    said += fmt::format("; beyond its launches at most {} us ({} at {})", microseconds(most_beyond),
                        word_of(worst->problem.pass), sizes_of(worst->problem));
  if (std::isfinite(most_pooled))
    said += fmt::format(", with a workspace of the library's pool at most {} us", microseconds(most_pooled));
  return said + ".";
}

std::string said_of_graph(const Way& way, const std::string& name, verification::CasePass pass) {
  double least = INFINITY, most = 0;
  std::size_t cells = 0, slower = 0;
  for (const Configuration& at : way.configurations) {
    const Measured* const own = at.find(name);
    if (at.problem.pass != pass || own == nullptr || !own->timed()) continue;
    ++cells;
    least = std::min(least, own->seconds());
    most = std::max(most, own->seconds());
    const Measured* const other = best_other(at);
    slower += other != nullptr && other->seconds() < own->seconds() && told_apart(own->row, other->row);
  }
  if (cells == 0) return "";
  return fmt::format("In a graph of dependent calls {} takes {} to {} us {} in {}; slower than another in {}.", name,
                     microseconds(least), microseconds(most), word_of(pass), count_of(cells),
                     slower == 0 ? "none" : std::to_string(slower));
}

}  // namespace

std::vector<Table> call_tables(const Study& study) {
  const std::map<std::string, Way> ways = ways_of(study);
  std::vector<Table> tables;
  std::set<std::string> taken;
  for (const auto& [key, way] : ways) {
    tables.push_back(table_of(study, way));
    for (int n = 2; !taken.insert(tables.back().id).second; ++n)  // other machines, other thread counts
      tables.back().id = fmt::format("{}-{}", way.of_host ? "host-of-a-call" : "call-in-a-graph", n);
  }
  return tables;
}

std::vector<std::string> said_of_calls(const Study& study) {
  std::vector<std::string> said;
  for (const auto& [key, way] : ways_of(study)) {
    for (const std::string& name : names_of(study, way, is_own)) {
      if (way.of_host) said.push_back(said_of_host(way, name));
      for (const verification::CasePass pass : verification::kCasePasses) {
        if (!way.of_host) said.push_back(said_of_graph(way, name, pass));
      }
    }
  }
  said.erase(std::remove(said.begin(), said.end(), ""), said.end());
  return said;
}

}  // namespace fovea::program

// Counts cells and kinds of plans, and prints them.
#include "program/verify/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "program/terminal_text.h"

namespace fovea::program {

using verification::AxisCell;
using verification::Case;
using verification::PlanKind;

namespace {

std::string_view name_of(Pass pass) { return pass == Pass::forward ? "forward" : "backward"; }

// The heads of columns, one under the other at their underscores: window_top_left takes three lines.
std::vector<std::vector<std::string>> lines_of(const std::vector<std::string>& heads) {
  std::vector<std::vector<std::string>> lines;
  for (std::size_t column = 0; column < heads.size(); ++column) {
    std::istringstream parts(heads[column]);
    std::size_t line = 0;
    for (std::string part; std::getline(parts, part, '_'); ++line) {
      if (line == lines.size()) lines.emplace_back(heads.size());
      lines[line][column] = part;
    }
  }
  return lines;
}

}  // namespace

Coverage::Coverage(const verification::Operation& operation) : operation_(operation), axes_(operation.axes()) {
  for (const auto& axis : axes_) cells_ *= axis.classes.size();
}

std::size_t Coverage::index_of(const AxisCell& cell) const {
  std::size_t index = 0;
  for (std::size_t n = 0; n < axes_.size(); ++n) index = index * axes_[n].classes.size() + cell[n];
  return index;
}

AxisCell Coverage::cell_of(std::size_t index) const {
  AxisCell cell(axes_.size());
  for (std::size_t n = axes_.size(); n-- > 0;) {
    cell[n] = index % axes_[n].classes.size();
    index /= axes_[n].classes.size();
  }
  return cell;
}

std::string Coverage::row_name(const AxisCell& cell) const {
  std::string text;
  for (std::size_t n = 0; n + 1 < axes_.size(); ++n) text += (n == 0 ? "" : " ") + axes_[n].classes[cell[n]];
  return text;
}

Coverage::Counts& Coverage::of(std::string_view implementation) {
  for (Counts& one : counts_) {
    if (one.implementation.name == implementation) return one;
  }
  Counts& added = counts_.emplace_back();
  added.implementation.name = implementation;
  for (const auto& facts : operation_.implementations()) {
    if (facts.name == implementation) added.implementation = facts;
  }
  added.cells.resize(cells_);
  added.kinds = operation_.plan_kinds(added.implementation);
  added.plans.resize(added.kinds.size());
  return added;
}

void Coverage::count(std::string_view implementation, const Case& c) {
  Counts& counts = of(implementation);
  if (c.forwards()) ++counts.cells[index_of(operation_.cell_of(c, Pass::forward))];
  if (c.backwards()) ++counts.cells[index_of(operation_.cell_of(c, Pass::backward))];
  if (counts.kinds.empty()) return;
  for (const PlanKind& kind : operation_.plan_kinds(counts.implementation, c)) {
    for (std::size_t n = 0; n < counts.kinds.size(); ++n) counts.plans[n] += counts.kinds[n] == kind ? 1 : 0;
  }
}

std::vector<Coverage::Shortage> Coverage::below(const Wanted& wanted, bool forward, bool backward,
                                                DeviceKind device) const {
  const auto pass = std::find_if(axes_.begin(), axes_.end(), [](const auto& axis) { return axis.name == "pass"; });
  const auto pass_axis = static_cast<std::size_t>(pass - axes_.begin());
  const auto implementations = operation_.implementations();
  std::vector<Shortage> found;
  for (const Counts& counts : counts_) {
    const std::string& name = counts.implementation.name;
    const auto implementation = std::find_if(implementations.begin(), implementations.end(),
                                             [&](const auto& one) { return one.name == name && one.device == device; });
    if (implementation == implementations.end()) continue;
    for (std::size_t n = 0; n < cells_; ++n) {
      const AxisCell cell = cell_of(n);
      const bool asked = axes_[pass_axis].classes[cell[pass_axis]] == "forward" ? forward : backward;
      if (!asked || counts.cells[n] >= wanted.per_cell) continue;
      if (operation_.support_of(*implementation, cell).support != verification::Support::yes) continue;
      found.push_back({fmt::format("{} {} {}", name, row_name(cell), axes_.back().classes[cell.back()]),
                       counts.cells[n], wanted.per_cell});
    }
    for (std::size_t n = 0; n < counts.kinds.size(); ++n) {
      const bool asked = counts.kinds[n].pass == Pass::forward ? forward : backward;
      if (asked && counts.plans[n] < wanted.per_plan_kind)
        found.push_back({fmt::format("{} {} with {}", name, name_of(counts.kinds[n].pass), counts.kinds[n].name),
                         counts.plans[n], wanted.per_plan_kind});
    }
  }
  return found;
}

std::string Coverage::text() const {
  std::string text;
  const std::size_t columns = axes_.back().classes.size();
  const auto heads = lines_of(axes_.back().classes);
  std::size_t number = 7;  // columns of a count
  for (const auto& line : heads) {
    for (const std::string& part : line) number = std::max(number, part.size() + 1);
  }
  for (const Counts& counts : counts_) {
    const std::string title = "Cases that " + counts.implementation.name + " ran";
    std::size_t width = title.size();
    for (std::size_t n = 0; n < cells_; n += columns) width = std::max(width, row_name(cell_of(n)).size());
    for (std::size_t line = 0; line < heads.size(); ++line) {
      text += fmt::format("{:<{}}", line == 0 ? title : "", width);
      for (const std::string& part : heads[line]) text += fmt::format("{:>{}}", part, number);
      text += "\n";
    }
    for (std::size_t n = 0; n < cells_; n += columns) {
      std::string row;
      std::int64_t total = 0;
      for (std::size_t c = 0; c < columns; ++c) {
        row += fmt::format("{:>{}}", counts.cells[n + c], number);
        total += counts.cells[n + c];
      }
      if (total > 0) text += fmt::format("{:<{}}{}\n", row_name(cell_of(n)), width, row);
    }
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      std::string plans;
      for (std::size_t n = 0; n < counts.kinds.size(); ++n) {
        if (counts.kinds[n].pass == pass)
          plans += fmt::format("{} {} {}", plans.empty() ? "" : ",", counts.kinds[n].name, counts.plans[n]);
      }
      if (!plans.empty()) text += wrapped(fmt::format("Its plans, {}:{}", name_of(pass), plans), 2) + "\n";
    }
    text += "\n";
  }
  return text;
}

nlohmann::json Coverage::json() const {
  auto rows = nlohmann::json::array();
  for (const Counts& counts : counts_) {
    for (std::size_t n = 0; n < cells_; ++n) {
      const AxisCell cell = cell_of(n);
      nlohmann::json row{{"impl", counts.implementation.name}, {"executed", counts.cells[n]}};
      for (std::size_t axis = 0; axis < axes_.size(); ++axis) row[axes_[axis].name] = axes_[axis].classes[cell[axis]];
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

nlohmann::json Coverage::plan_kinds_json() const {
  auto rows = nlohmann::json::array();
  for (const Counts& counts : counts_) {
    for (std::size_t n = 0; n < counts.kinds.size(); ++n)
      rows.push_back({{"impl", counts.implementation.name},
                      {"pass", name_of(counts.kinds[n].pass)},
                      {"kind", counts.kinds[n].name},
                      {"executed", counts.plans[n]}});
  }
  return rows;
}

void Coverage::add(const nlohmann::json& rows, const nlohmann::json& plan_kinds) {
  for (std::size_t n = 0; n < rows.size(); ++n)
    of(rows[n]["impl"].get<std::string>()).cells[n % cells_] += rows[n]["executed"].get<std::int64_t>();
  for (const auto& row : plan_kinds) {
    Counts& counts = of(row["impl"].get<std::string>());
    for (std::size_t n = 0; n < counts.kinds.size(); ++n) {
      if (name_of(counts.kinds[n].pass) == row["pass"] && counts.kinds[n].name == row["kind"])
        counts.plans[n] += row["executed"].get<std::int64_t>();
    }
  }
}

}  // namespace fovea::program

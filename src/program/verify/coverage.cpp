// Counts cells and prints them.
#include "program/verify/coverage.h"

#include <fmt/format.h>

#include <algorithm>

namespace fovea::program {

using verification::AxisCell;
using verification::Case;

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
  for (auto& [name, counts] : counts_) {
    if (name == implementation) return counts;
  }
  return counts_.emplace_back(std::string(implementation), Counts(cells_)).second;
}

void Coverage::count(std::string_view implementation, const Case& c) {
  Counts& counts = of(implementation);
  if (c.forwards()) ++counts[index_of(operation_.cell_of(c, Pass::forward))];
  if (c.backwards()) ++counts[index_of(operation_.cell_of(c, Pass::backward))];
}

std::vector<Coverage::Shortage> Coverage::below(std::int64_t wanted, bool forward, bool backward,
                                                DeviceKind device) const {
  const auto pass = std::find_if(axes_.begin(), axes_.end(), [](const auto& axis) { return axis.name == "pass"; });
  const auto pass_axis = static_cast<std::size_t>(pass - axes_.begin());
  const auto implementations = operation_.implementations();
  std::vector<Shortage> found;
  for (const auto& [name, counts] : counts_) {
    const auto implementation = std::find_if(implementations.begin(), implementations.end(), [&, n = name](auto& one) {
      return one.name == n && one.device == device;
    });
    if (implementation == implementations.end()) continue;
    for (std::size_t n = 0; n < cells_; ++n) {
      const AxisCell cell = cell_of(n);
      const bool asked = axes_[pass_axis].classes[cell[pass_axis]] == "forward" ? forward : backward;
      if (!asked || counts[n] >= wanted) continue;
      if (operation_.support_of(*implementation, cell).support != verification::Support::yes) continue;
      found.push_back({fmt::format("{} {} {}", name, row_name(cell), axes_.back().classes[cell.back()]), counts[n]});
    }
  }
  return found;
}

std::string Coverage::text() const {
  std::string text;
  const std::size_t columns = axes_.back().classes.size();
  std::size_t width = 0;  // of the longest row name; attention's table then has 80 columns
  for (std::size_t n = 0; n < cells_; n += columns) width = std::max(width, row_name(cell_of(n)).size());
  for (const auto& [name, counts] : counts_) {
    text += fmt::format("{:<{}}", "Cases that " + name + " ran", width);
    for (const auto& column : axes_.back().classes) text += fmt::format("{:>7}", column);
    text += "\n";
    for (std::size_t n = 0; n < cells_; n += columns) {
      std::string row;
      std::int64_t total = 0;
      for (std::size_t c = 0; c < columns; ++c) {
        row += fmt::format("{:>7}", counts[n + c]);
        total += counts[n + c];
      }
      if (total > 0) text += fmt::format("{:<{}}{}\n", row_name(cell_of(n)), width, row);
    }
    text += "\n";
  }
  return text;
}

nlohmann::json Coverage::json() const {
  auto rows = nlohmann::json::array();
  for (const auto& [name, counts] : counts_) {
    for (std::size_t n = 0; n < cells_; ++n) {
      const AxisCell cell = cell_of(n);
      nlohmann::json row{{"impl", name}, {"executed", counts[n]}};
      for (std::size_t axis = 0; axis < axes_.size(); ++axis) row[axes_[axis].name] = axes_[axis].classes[cell[axis]];
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

void Coverage::add(const nlohmann::json& rows) {
  for (std::size_t n = 0; n < rows.size(); ++n)
    of(rows[n]["impl"].get<std::string>())[n % cells_] += rows[n]["executed"].get<std::int64_t>();
}

}  // namespace fovea::program

// For each model its times and its parts; then the memory of all.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "program/machine/machine.h"
#include "program/profile/profile.h"
#include "program/terminal_text.h"

namespace fovea::program {
namespace {

using Cells = std::vector<std::vector<std::string>>;

std::string milliseconds(const ProfileRow& row, const std::string& phase) {
  const auto found = row.times.find(phase);
  if (found == row.times.end()) return row.status == "ok" ? "-" : row.status;
  const double ms = found->second.mean * 1e3, spread = found->second.std * 1e3;
  return fmt::format("{:.{}f} ± {:.{}f}", ms, ms < 100 ? 2 : 0, spread, ms < 100 ? 2 : 0);
}

std::vector<std::string> times_of(const ProfileRow& row, double fma_rate) {
  std::vector<std::string> cells{row.passes};
  for (const char* phase : {"forward", "backward", "optimizer"}) cells.push_back(milliseconds(row, phase));
  const auto total = row.times.find("total");
  if (total == row.times.end()) {
    cells.insert(cells.end(), {row.status, row.status, "-"});
    return cells;
  }
  const double seconds = total->second.mean, rate = row.flops / seconds;
  cells.push_back(fmt::format("{:.0f}", static_cast<double>(row.batch * row.context) / seconds));
  cells.push_back(fmt::format("{:.1f}", rate / 1e9));
  cells.push_back(fma_rate > 0 ? fmt::format("{:.0f} %", 100 * rate / fma_rate) : "-");
  return cells;
}

// The parts of the pass that has most of them, the longest first.
std::string parts_table(const ProfileRow& row, double fma_rate) {
  std::vector<std::pair<std::string, PartTimes>> parts(row.parts.begin(), row.parts.end());
  std::ranges::stable_sort(parts, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  Cells table{{"part", "calls", "ms", "share", "GFLOP/s", "of peak"}};
  for (const auto& [name, part] : parts) {
    const double rate = part.seconds > 0 ? part.flops / part.seconds : 0;
    table.push_back({name, std::to_string(part.calls), fmt::format("{:.3f}", part.seconds * 1e3),
                     fmt::format("{:.1f} %", 100 * part.seconds / row.times.at("total").mean),
                     rate > 0 ? fmt::format("{:.1f}", rate / 1e9) : "-",
                     rate > 0 && fma_rate > 0 ? fmt::format("{:.0f} %", 100 * rate / fma_rate) : "-"});
  }
  return row.model + ", " + row.passes + ": parts of a step\n" + aligned(table) + "\n";
}

}  // namespace

std::string profile_table(const std::vector<ProfileRow>& rows, double fma_rate) {
  std::map<std::string, Cells> times;
  std::vector<std::string> models;
  Cells memory{{"model", "parameters", "state", "activations", "workspace", "all"}};
  for (const ProfileRow& row : rows) {
    Cells& table = times[row.model];
    if (table.empty()) {
      table.push_back({"passes", "forward", "backward", "optimizer", "tokens/s", "GFLOP/s", "of peak"});
      models.push_back(row.model);
      memory.push_back({row.model, fmt::format("{:.1f} M", static_cast<double>(row.parameters) / 1e6),
                        binary_size(row.state_bytes), binary_size(row.activation_bytes),
                        binary_size(row.workspace_bytes), binary_size(row.planned_bytes)});
    }
    table.push_back(times_of(row, fma_rate));
  }
  std::string text;
  for (const std::string& model : models) {
    text += model + ": milliseconds, mean and standard deviation\n" + aligned(times[model]) + "\n";
    const ProfileRow* longest = nullptr;
    for (const ProfileRow& row : rows) {
      if (row.model == model && row.parts.size() > (longest == nullptr ? 0 : longest->parts.size())) longest = &row;
    }
    if (longest != nullptr) text += parts_table(*longest, fma_rate);
  }
  return text + "Memory, as planned\n" + aligned(memory);
}

}  // namespace fovea::program

// For each model its times and its parts; then the memory of all.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/binary_size.h"
#include "program/machine/machine.h"
#include "program/profile/profile.h"
#include "program/terminal_text.h"

namespace fovea::program {
namespace {

using Cells = std::vector<std::vector<std::string>>;

double mean_of(const ProfileResult& result, const std::vector<std::string>& phases) {
  const std::vector<double> total = total_of(result.seconds, phases);
  return total.empty() ? 0 : statistics_of(total).mean;
}

std::string milliseconds(const ProfileResult& result, const std::string& phase) {
  const auto found = result.seconds.find(phase);
  if (found == result.seconds.end()) return result.status == "ok" ? "-" : result.status;
  const TimeStatistics t = statistics_of(found->second);
  const int digits = t.mean < 0.1 ? 2 : 0;
  return fmt::format("{:.{}f} ± {:.{}f}", t.mean * 1e3, digits, t.std * 1e3, digits);
}

const std::vector<std::string> kPhases{"forward", "backward", "optimizer"};

std::vector<std::string> named(const ProfileResult& result, bool has_peers) {
  std::vector<std::string> cells{result.row.passes};
  if (has_peers) cells.push_back(result.impl);
  return cells;
}

std::vector<std::string> times_of(const ProfileResult& result, bool has_peers) {
  std::vector<std::string> cells = named(result, has_peers);
  for (const std::string& phase : kPhases) cells.push_back(milliseconds(result, phase));
  return cells;
}

std::vector<std::string> rates_of(const ProfileResult& result, double fma_rate, bool has_peers) {
  std::vector<std::string> cells = named(result, has_peers);
  const double seconds = mean_of(result, kPhases);
  if (seconds <= 0) {
    cells.insert(cells.end(), {result.status, result.status, "-"});
    return cells;
  }
  const double rate = result.row.flops / seconds;
  cells.push_back(fmt::format("{:.0f}", static_cast<double>(result.row.batch * result.row.context) / seconds));
  cells.push_back(fmt::format("{:.1f}", rate / 1e9));
  cells.push_back(fma_rate > 0 ? fmt::format("{:.0f} %", 100 * rate / fma_rate) : "-");
  return cells;
}

// The parts of the pass that has most of them, the longest first.
std::string parts_table(const ProfileResult& result, double fma_rate) {
  const ProfileRow& row = result.row;
  std::vector<std::pair<std::string, PartTimes>> parts(row.parts.begin(), row.parts.end());
  std::ranges::stable_sort(parts, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  Cells table{{"part", "calls", "ms", "share", "GFLOP/s", "of peak"}};
  for (const auto& [name, part] : parts) {
    const double rate = part.seconds > 0 ? part.flops / part.seconds : 0;
    table.push_back({name, std::to_string(part.calls), fmt::format("{:.3f}", part.seconds * 1e3),
                     fmt::format("{:.1f} %", 100 * part.seconds / mean_of(result, kPhases)),
                     rate > 0 ? fmt::format("{:.1f}", rate / 1e9) : "-",
                     rate > 0 && fma_rate > 0 ? fmt::format("{:.0f} %", 100 * rate / fma_rate) : "-"});
  }
  return row.model + ", " + row.passes + ": parts of a step\n" + aligned(table) + "\n";
}

// What each implementation spends beside this library's products: medians, since steps are few.
void add_beyond_products(Cells& table, const ProfileResult& result, double products) {
  const std::vector<double> steps = total_of(result.seconds, kPhases);
  if (steps.empty() || products <= 0) return;
  const double step = statistics_of(steps).median;
  table.push_back({result.row.passes, result.impl, fmt::format("{:.1f}", step * 1e3),
                   fmt::format("{:.1f}", products * 1e3), fmt::format("{:.1f}", (step - products) * 1e3)});
}

std::string beyond_products_table(const std::vector<ProfileResult>& results, const std::string& model) {
  Cells table{{"passes", "by", "step", "products", "beyond"}};
  double products = 0;  // of the same passes: this library's result comes before those of peers
  for (const ProfileResult& one : results) {
    if (one.row.model != model) continue;
    if (one.impl == kOwnName) products = one.row.products_s.value_or(0);
    add_beyond_products(table, one, products);
  }
  if (table.size() == 1) return {};
  return model + ": milliseconds, medians; products: fovea's alone, in turns with the steps\n" + aligned(table) + "\n";
}

// In any kind of step of the row's model.
std::string most_measured(const std::vector<ProfileResult>& results, const ProfileRow& row) {
  std::int64_t most = 0;
  for (const ProfileResult& one : results) {
    if (one.row.model == row.model) most = std::max(most, one.row.measured_bytes.value_or(0));
  }
  return most > 0 ? core::binary_size(most) : "-";
}

}  // namespace

std::string profile_table(const std::vector<ProfileResult>& results, double fma_rate) {
  const bool has_peers = std::ranges::any_of(results, [](const auto& one) { return one.impl != kOwnName; });
  std::map<std::string, Cells> times, rates;  // two tables, since one would be wider than a terminal
  std::vector<std::string> models;
  Cells memory{{"model", "parameters", "state", "activations", "workspace", "all", "measured"}};
  for (const ProfileResult& result : results) {
    const ProfileRow& row = result.row;
    if (times[row.model].empty()) {
      times[row.model].push_back({"passes", "forward", "backward", "optimizer"});
      rates[row.model].push_back({"passes", "tokens/s", "GFLOP/s", "of peak"});
      for (Cells* const table : {&times[row.model], &rates[row.model]}) {
        if (has_peers) table->front().insert(table->front().begin() + 1, "by");
      }
      models.push_back(row.model);
      memory.push_back({row.model, fmt::format("{:.1f} M", static_cast<double>(row.parameters) / 1e6),
                        core::binary_size(row.state_bytes), core::binary_size(row.activation_bytes),
                        core::binary_size(row.workspace_bytes), core::binary_size(row.planned_bytes),
                        most_measured(results, row)});
    }
    times[row.model].push_back(times_of(result, has_peers));
    rates[row.model].push_back(rates_of(result, fma_rate, has_peers));
  }
  std::string text;
  for (const std::string& model : models) {
    text += model + ": milliseconds, mean and standard deviation\n" + aligned(times[model]) + "\n" +
            model + ": rates of all phases\n" + aligned(rates[model]) + "\n";
    const ProfileResult* longest = nullptr;
    for (const ProfileResult& one : results) {
      const std::size_t most = longest == nullptr ? 0 : longest->row.parts.size();
      if (one.row.model == model && one.impl == kOwnName && one.row.parts.size() > most) longest = &one;
    }
    if (longest != nullptr) text += parts_table(*longest, fma_rate);
    text += beyond_products_table(results, model);
  }
  return text + "Memory, planned and measured\n" + aligned(memory);
}

}  // namespace fovea::program

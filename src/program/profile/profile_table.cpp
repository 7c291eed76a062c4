// For each model its times and its parts; then the memory of all.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/binary_size.h"
#include "core/printable.h"
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

// GPUs are a thousand times as fast.
struct RateUnit {
  const char* name;
  double flops;  // a second
};
RateUnit unit_of(const ProfileRow& row) {
  return row.device == "cpu" ? RateUnit{"GFLOP/s", 1e9} : RateUnit{"TFLOP/s", 1e12};
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
  cells.push_back(fmt::format("{:.1f}", rate / unit_of(result.row).flops));
  cells.push_back(fma_rate > 0 ? fmt::format("{:.0f} %", 100 * rate / fma_rate) : "-");
  return cells;
}

void append_statistics(std::vector<std::string>& cells, const std::vector<double>& samples) {
  const TimeStatistics t = statistics_of(samples);
  for (const double one : {t.mean, t.std, t.min, t.median})
    cells.push_back(fmt::format("{:.{}f}", one * 1e3, t.mean < 0.1 ? 2 : 0));
}

// All phases together, with clock and power; below them each phase, if there are several.
void add_statistics(Cells& table, const ProfileResult& result, bool has_peers) {
  std::vector<std::string>& whole = table.emplace_back(named(result, has_peers));
  const std::vector<double> total = total_of(result.seconds, kPhases);
  const auto amount = [](const std::optional<double>& value) { return value ? fmt::format("{:.0f}", *value) : "-"; };
  if (total.empty()) {
    whole.insert(whole.end(), {result.status, "-", "-", "-", "-", "-"});
    return;
  }
  append_statistics(whole, total);
  whole.insert(whole.end(), {amount(result.clock_mhz), amount(result.power_w)});
  for (const std::string& phase : kPhases) {
    if (result.seconds.size() < 2 || !result.seconds.contains(phase)) continue;
    std::vector<std::string>& cells = table.emplace_back(std::vector<std::string>{"  " + phase});
    if (has_peers) cells.emplace_back();
    append_statistics(cells, result.seconds.at(phase));
  }
}

double floor_of(const PartTimes& part, const Ceilings& ceilings) {
  const double products = ceilings.flops > 0 ? part.flops / ceilings.flops : 0;
  return std::max(products, ceilings.bytes > 0 ? part.bytes / ceilings.bytes : 0);
}

// Attention is what the layer does between its projections.
std::string kind_of(const std::string& name, const PartTimes& part) {
  if (name.ends_with(".attention")) return "attention";
  if (name.ends_with(".recompute")) return "blocks again";
  return part.flops > 0 ? "products" : "the rest";
}

std::string shares_of_kinds(const ProfileRow& row) {
  std::map<std::string, double> seconds;
  double all = 0;
  for (const auto& [name, part] : row.parts) seconds[kind_of(name, part)] += part.seconds, all += part.seconds;
  std::string text;
  for (const char* kind : {"products", "attention", "blocks again", "the rest"}) {
    if (seconds.contains(kind))
      text += fmt::format("{}{} {:.1f} %", text.empty() ? "" : ", ", kind, 100 * seconds[kind] / all);
  }
  return "floor: the time of its flops or its bytes at the measured ceilings\nin all: " + text + "\n";
}

// The parts of the pass that has most of them, the longest first.
std::string parts_table(const ProfileResult& result, const Ceilings& ceilings) {
  const ProfileRow& row = result.row;
  std::vector<std::pair<std::string, PartTimes>> parts(row.parts.begin(), row.parts.end());
  std::ranges::stable_sort(parts, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  const RateUnit unit = unit_of(row);
  Cells table{{"part", "calls", "ms", "share", unit.name, "GB/s", "floor/time"}};
  for (const auto& [name, part] : parts) {
    const auto rate = [&part](double amount, double in_units) {
      return part.seconds > 0 && amount > 0 ? fmt::format("{:.1f}", amount / part.seconds / in_units) : "-";
    };
    const double floor = floor_of(part, ceilings);
    table.push_back({name, std::to_string(part.calls), fmt::format("{:.3f}", part.seconds * 1e3),
                     fmt::format("{:.1f} %", 100 * part.seconds / mean_of(result, kPhases)),
                     rate(part.flops, unit.flops), rate(part.bytes, 1e9),
                     floor > 0 && part.seconds > 0 ? fmt::format("{:.0f} %", 100 * floor / part.seconds) : "-"});
  }
  return row.model + ", " + row.passes + ": parts of a step\n" + aligned(table) + shares_of_kinds(row) + "\n";
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
  return model + ": ms, medians; products are fovea's, alone\n" + aligned(table) + "\n";
}

// What was compared before the model was timed, and what is wrong with it.
std::string check_line(const ProfileResult& result) {
  constexpr std::size_t kMostOfReason = 400;  // the record has all
  if (result.checked.empty()) return {};
  const bool is_wrong = result.status == "mismatch";
  std::string text = (is_wrong ? "wrong: " : "checked: ") + result.checked + ", against the reference\n";
  if (is_wrong) text += wrapped(cut_to(core::printable(result.reason), kMostOfReason), 2) + "\n";
  return text;
}

// In any kind of step of the row's model.
std::string most_measured(const std::vector<ProfileResult>& results, const ProfileRow& row) {
  std::int64_t most = 0;
  for (const ProfileResult& one : results) {
    if (one.row.model == row.model) most = std::max(most, one.row.measured_bytes.value_or(0));
  }
  return most > 0 ? core::binary_size(most) : "-";
}

std::string mebibytes(std::int64_t bytes) { return fmt::format("{:.1f}", static_cast<double>(bytes) / 1048576); }

std::string memory_of_a_step(const ProfileRow& row) {
  constexpr std::pair<const char*, const char*> kMoments[] = {{"after_init", "after init"},
                                                              {"forward", "forward, peak"},
                                                              {"before_backward", "before backward"},
                                                              {"backward", "backward, peak"},
                                                              {"optimizer", "optimizer, peak"}};
  Cells table{{"moment", "in use, planned", "allocated, measured"}};
  for (const auto& [key, words] : kMoments) {
    const auto found = row.memory.find(key);
    if (found == row.memory.end()) continue;
    const std::optional<std::int64_t>& measured = found->second.measured;
    table.push_back({words, mebibytes(found->second.planned), measured ? mebibytes(*measured) : "-"});
  }
  table.push_back(
      {row.passes + ", peak", mebibytes(row.planned_bytes), row.measured_bytes ? mebibytes(*row.measured_bytes) : "-"});
  return row.model + ", " + row.passes + ": MiB of memory; the plan is one block\n" + aligned(table) + "\n";
}

}  // namespace

std::string memory_table(const std::vector<ProfileResult>& results, const std::vector<ProfileRow>& largest) {
  std::map<std::string, const ProfileRow*> longest;  // of each model, the kind of step with most moments
  std::vector<std::string> models;
  for (const ProfileResult& result : results) {
    if (result.impl != kOwnName) continue;
    const ProfileRow*& row = longest[result.row.model];
    if (row == nullptr) models.push_back(result.row.model);
    if (row == nullptr || result.row.memory.size() > row->memory.size()) row = &result.row;
  }
  std::string text, reasons;
  for (const std::string& model : models) text += memory_of_a_step(*longest[model]);
  Cells table{{"model", "largest", "at", "planned", "measured", "verified"}};
  for (const ProfileRow& row : largest) {
    std::string sizes[] = {"batch " + std::to_string(row.batch), "context " + std::to_string(row.context)};
    if (row.largest == "context") std::swap(sizes[0], sizes[1]);
    table.push_back({row.model, sizes[0], sizes[1], core::binary_size(row.planned_bytes),
                     row.measured_bytes ? core::binary_size(*row.measured_bytes) : "-",
                     row.status != "ok"   ? row.status
                     : row.reason.empty() ? "a step ran"
                                          : "memory written"});
    if (!row.reason.empty()) reasons += fmt::format("{}, {}: {}\n", row.model, sizes[0], core::printable(row.reason));
  }
  return text + "The largest that fits into the free memory\n" + aligned(table) + reasons;
}

std::string profile_table(const std::vector<ProfileResult>& results, const Ceilings& ceilings) {
  const bool has_peers = std::ranges::any_of(results, [](const auto& one) { return one.impl != kOwnName; });
  std::map<std::string, Cells> times, statistics, rates;  // three tables, since one would be wider than a terminal
  std::vector<std::string> models;
  Cells memory{{"model", "parameters", "state", "activations", "workspace", "all", "measured"}};
  for (const ProfileResult& result : results) {
    const ProfileRow& row = result.row;
    if (times[row.model].empty()) {
      times[row.model].push_back({"passes", "forward", "backward", "optimizer"});
      rates[row.model].push_back({"passes", "tokens/s", unit_of(row).name, "of peak"});
      statistics[row.model].push_back({"passes", "mean", "std", "min", "median", "MHz", "W"});
      for (Cells* const table : {&times[row.model], &statistics[row.model], &rates[row.model]}) {
        if (has_peers) table->front().insert(table->front().begin() + 1, "by");
      }
      models.push_back(row.model);
      memory.push_back({row.model, fmt::format("{:.1f} M", static_cast<double>(row.parameters) / 1e6),
                        core::binary_size(row.state_bytes), core::binary_size(row.activation_bytes),
                        core::binary_size(row.workspace_bytes), core::binary_size(row.planned_bytes),
                        most_measured(results, row)});
    }
    times[row.model].push_back(times_of(result, has_peers));
    add_statistics(statistics[row.model], result, has_peers);
    rates[row.model].push_back(rates_of(result, ceilings.flops, has_peers));
  }
  std::string text;
  for (const std::string& model : models) {
    const ProfileResult& own = *std::ranges::find_if(
        results, [&model](const auto& one) { return one.row.model == model && one.impl == kOwnName; });
    text += model + ": milliseconds, mean and standard deviation\n" + aligned(times[model]) + check_line(own) + "\n" +
            model + ": milliseconds of all phases and of each, clock and power\n" + aligned(statistics[model]) + "\n" +
            model + ": rates of all phases\n" + aligned(rates[model]) + "\n";
    const ProfileResult* longest = nullptr;
    for (const ProfileResult& one : results) {
      const std::size_t most = longest == nullptr ? 0 : longest->row.parts.size();
      if (one.row.model == model && one.impl == kOwnName && one.row.parts.size() > most) longest = &one;
    }
    if (longest != nullptr) text += parts_table(*longest, ceilings);
    text += beyond_products_table(results, model);
  }
  return text + "Memory, planned and measured\n" + aligned(memory);
}

}  // namespace fovea::program

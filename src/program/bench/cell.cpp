// The steps of a cell: refuse contenders that cannot run, check answers, time, rate.
#include "program/bench/cell.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/binary_size.h"
#include "core/names.h"
#include "cuda/measure/device_facts.h"
#include "fovea/error.h"
#include "program/machine/ceilings.h"
#include "program/machine/freed_memory.h"
#include "program/worker/commands.h"
#include "source_version.h"
#include "verification/problem_line.h"

namespace fovea::program {
namespace {

constexpr double kProbeSeconds = 0.01;
constexpr double kLaunchBoundSeconds = 20e-6;  // shorter calls are mostly fixed cost, such as waking threads
constexpr int kCrashesToGiveUp = 3;            // after so many crashes in a row a contender no longer runs

// The last elements of `pooled` and `launches` belong to the samples. Nullopt if the launches of a sample are not
// known.
std::optional<LaunchShare> launch_share(const std::vector<double>& samples, const std::vector<double>& pooled,
                                        const std::vector<double>& launches) {
  const auto known = [](double seconds) { return !std::isnan(seconds); };
  const auto alone = launches.end() - std::ssize(samples), with_pool = pooled.end() - std::ssize(samples);
  if (!std::all_of(alone, launches.end(), known)) return std::nullopt;
  const auto median_beyond = [&](auto begin, auto end) {
    std::vector<double> beyond(samples.size());
    std::transform(begin, end, alone, beyond.begin(), std::minus<>());
    return statistics_of(std::move(beyond)).median;
  };
  LaunchShare share{statistics_of({alone, launches.end()}).median, median_beyond(samples.begin(), samples.end()), {}};
  if (std::all_of(with_pool, pooled.end(), known)) share.pooled_beyond_s = median_beyond(with_pool, pooled.end());
  return share;
}

}  // namespace

CellBench::CellBench(std::vector<Contender> contenders, CellSettings settings, Machine machine)
    : contenders_(std::move(contenders)),
      settings_(settings),
      machine_(std::move(machine)),
      inputs_("fovea inputs"),
      crashes_(contenders_.size()),
      workers_(contenders_.size()) {
  keep_freed_memory();
}

std::vector<Row> CellBench::run(const verification::Case& c, const std::function<bool(const std::string&)>& wanted,
                                const std::function<void(const RoundReport&)>& after_turn) {
  std::vector<Entry> entries = entries_for(c, wanted);
  for (Entry& entry : entries) {
    if (!entry.plan.refusal.empty()) {
      entry.row.fail("unsupported", entry.plan.refusal);
      entry.open = false;
    } else if (crashes_[entry.contender] >= kCrashesToGiveUp) {
      entry.row.fail("crashed", fmt::format("not run again: it crashed in {} cells in a row", kCrashesToGiveUp));
      entry.open = false;
    } else {
      refuse_too_large(c, entry);
    }
  }
  if (std::any_of(entries.begin(), entries.end(), [](const Entry& entry) { return entry.open; }) &&
      allocate_inputs(c, entries)) {
    fill_all_inputs(c);
    AnswerChecker checker(c, places_, inputs_);
    for (const auto& together : batches_of(c, entries)) {
      for (Entry* entry : together) check(c, *entry, checker);
      give_freed_memory_back();  // contenders may need it while they are timed
      time_all(c, together, checker, after_turn);
      for (const Entry* entry : together) count_crashes(*entry);
      drop_all();
    }
  }
  give_freed_memory_back();
  std::vector<Row> rows;
  for (Entry& entry : entries) rows.push_back(std::move(entry.row));
  return rows;
}

void CellBench::fill_all_inputs(const verification::Case& c) {
  const SpentTime spent(spent_.inputs);
  fill_inputs(c, places_, inputs_);
}

// Returns whether there is memory for the inputs. If not, every open row becomes oom.
bool CellBench::allocate_inputs(const verification::Case& c, std::vector<Entry>& entries) {
  places_ = places_of(c);
  old_places_ = places_without_guards(c);
  try {
    inputs_.resize(places_.input_bytes);
    return true;
  } catch (const Error& error) {
    for (Entry& entry : entries) {
      if (entry.open) fail_allocation(entry.row, error);
      entry.open = false;
    }
    return false;
  }
}

std::string CellBench::timer() const {
  if (settings_.device == DeviceKind::cpu) return "";
  const std::string& timing = settings_.timing;
  return timing == "host"    ? "cuda_host"
         : timing == "graph" ? "cuda_graph"
         : timing == "eager" ? "cuda_eager"
         : timing == "hot"   ? "cuda_events_hot"
                             : "cuda_events";
}

// One entry per implementation: `flash` and the name that it resolves to share one.
std::vector<CellBench::Entry> CellBench::entries_for(const verification::Case& c,
                                                     const std::function<bool(const std::string&)>& wanted) const {
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < contenders_.size(); ++i) {
    CellPlan plan = plan_cell(contenders_[i], c);
    const bool twice = std::any_of(entries.begin(), entries.end(), [&](const Entry& other) {
      return other.plan.implementation == plan.implementation;
    });
    if (twice || !wanted(plan.implementation)) continue;
    Row row = blank_row(c, plan);
    entries.push_back({i, std::move(plan), std::move(row)});
  }
  return entries;
}

Row CellBench::blank_row(const verification::Case& c, const CellPlan& plan) const {
  Row row;
  row.problem = verification::line_of(c);
  row.impl = plan.implementation;
  row.status = "ok";
  const verification::Cost cost = c.operation->cost(c);
  row.flops = cost.flops;
  row.bytes = cost.bytes;
  row.threads = settings_.threads;
  row.source = {kSourceCommit, kSourceDirty};
  row.timer = timer();
  row.machine = machine_.id();
  return row;
}

// Bytes of workspaces. With timing=host there are two: the caller's, and the pool's if the launches are known.
std::int64_t CellBench::workspaces_of(const Entry& entry) const {
  return entry.plan.workspace_bytes * (times_the_host() ? 2 : 1);
}

// Ends a row as oom before it runs, if its tensors and the implementation's planned memory exceed the limit.
void CellBench::refuse_too_large(const verification::Case& c, Entry& entry) const {
  const std::int64_t wanted = tensor_bytes(c) + workspaces_of(entry) + entry.plan.saved_bytes;
  if (wanted <= settings_.memory_limit) return;
  entry.row.fail("oom", fmt::format("needs {} (tensors {}, workspace {}, saved state {}); {} may be used",
                                    core::binary_size(wanted), core::binary_size(tensor_bytes(c)),
                                    core::binary_size(workspaces_of(entry)), core::binary_size(entry.plan.saved_bytes),
                                    core::binary_size(settings_.memory_limit)));
  entry.row.workspace_bytes = entry.plan.workspace_bytes;
  entry.row.saved_bytes = entry.plan.saved_bytes;
  if (contenders_[entry.contender].ours)
    entry.row.memory_before_backward_bytes = forward_tensor_bytes(c) + entry.plan.saved_bytes;
  entry.open = false;
}

// Contenders that are timed in turns hold their memory at the same time. If that is too much for the machine, they are
// timed in groups.
std::vector<std::vector<CellBench::Entry*>> CellBench::batches_of(const verification::Case& c,
                                                                  std::vector<Entry>& entries) const {
  const auto unknown = static_cast<std::int64_t>(c.operation->cost(c).scratch_bytes);
  std::vector<std::vector<Entry*>> batches;
  std::int64_t taken = 0;
  for (Entry& entry : entries) {
    if (!entry.open) continue;
    const bool ours = contenders_[entry.contender].ours;
    std::int64_t wanted = tensor_bytes(c) + workspaces_of(entry) + entry.plan.saved_bytes;
    if (!ours) wanted += contenders_[entry.contender].holds_scores ? unknown : 2 * tensor_bytes(c);
    if (batches.empty() || taken + wanted > settings_.memory_limit) {
      batches.emplace_back();
      taken = 0;
    }
    batches.back().push_back(&entry);
    taken += wanted;
  }
  return batches;
}

void CellBench::time_all(const verification::Case& c, const std::vector<Entry*>& together, AnswerChecker& checker,
                         const std::function<void(const RoundReport&)>& after_turn) {
  std::vector<SampleSource> sources;
  std::vector<Entry*> timed;
  for (Entry* entry : together) {
    if (!entry->open || !poison_before_timing(c, *entry)) continue;
    timed.push_back(entry);
    entry->meter.emplace(energy_);
    sources.push_back(source_of(*entry));
  }
  if (timed.empty()) return;
  const DeviceKind device = c.device();
  // If a cell is sampled for only milliseconds, its probes must not take longer.
  const double probe = std::min(kProbeSeconds, settings_.limits.repeat_for / 10);
  const auto probed = [&] { return times_the_host() ? 0 : probe_flops(device, c.dtype(), settings_.threads, probe); };
  const auto product = settings_.ceilings.find(product_name(device, c.dtype()));
  const double before = probed();
  const double best_product = times_the_host() || product == settings_.ceilings.end() ? 0 : product->second;
  std::vector<SampleOutcome> outcomes = [&] {
    const SpentTime spent(spent_.sampling);
    return sample_interleaved(sources, settings_.limits, settings_.seed, after_turn);
  }();
  const RowCeiling ceiling = row_ceiling(before, probed(), best_product, probed);
  for (std::size_t i = 0; i < timed.size(); ++i) {
    if (outcomes[i].status != "ok") {
      timed[i]->row.fail(outcomes[i].status, outcomes[i].reason);
    } else if (check_again(*timed[i], checker)) {
      judge(c, *timed[i], std::move(outcomes[i].samples), ceiling);
    }
  }
}

SampleSource CellBench::source_of(Entry& entry) {
  return {entry.plan.implementation, [this, &entry](int runs, int lead) {
            entry.meter->begin();
            const SampleReply reply = sample_runs(worker(entry.contender), runs, lead, settings_.limits.timeout);
            entry.meter->end();
            if (reply.clock_mhz) entry.clocks_mhz.push_back(*reply.clock_mhz);
            if (reply.power_w) entry.powers_w.push_back(*reply.power_w);
            const auto append = [runs]<class Value>(std::vector<Value> values, std::vector<Value>& all, Value unknown) {
              values.resize(static_cast<std::size_t>(runs), unknown);
              all.insert(all.end(), values.begin(), values.end());
            };
            append(reply.launches, entry.launches, double{NAN});
            append(reply.pooled, entry.pooled, double{NAN});
            append(reply.host_bound, entry.host_bound, false);
            return reply.seconds;
          }};
}

void CellBench::judge(const verification::Case& c, Entry& entry, std::vector<double> samples,
                      const RowCeiling& ceiling) const {
  Row& row = entry.row;
  row.launches = launch_share(samples, entry.pooled, entry.launches);
  const bool host_bound = is_host_bound(entry.host_bound, std::ssize(samples));
  row.time_s = statistics_of(std::move(samples));
  const TimeStatistics& t = *row.time_s;
  if (!times_the_host()) rate(c, entry, ceiling);
  if ((t.q3 - t.q1) / t.median > kNoisySpread) row.flags.emplace_back("noisy");
  if (t.median < kLaunchBoundSeconds && times_single_runs()) row.flags.emplace_back("launch_bound");
  if (host_bound) row.flags.emplace_back("host_bound");
  if (t.n < kEnoughSamples) row.flags.emplace_back("few_samples");
}

// Computes the row's rates and flags impossible ones. With timing=host the time is the host's, and rates mean nothing.
void CellBench::rate(const verification::Case& c, Entry& entry, const RowCeiling& ceiling) const {
  Row& row = entry.row;
  const TimeStatistics& t = *row.time_s;
  read_state(entry);
  row.tflops = row.flops / t.median / 1e12;
  if (ceiling.flops_per_s > 0) {
    row.ceiling = ceiling;
    row.ceiling_share = row.flops / t.median / ceiling.flops_per_s;
  }
  const double floor = row.flops / fastest_honest(c);
  const bool impossible = t.min <= 0 || (std::isfinite(floor) && t.min < floor);
  if (impossible) row.flags.emplace_back("impossible");
  if (row.ceiling && is_low_probe(ceiling, impossible ? 0 : row.flops / t.median)) row.flags.emplace_back("low_probe");
}

// Timeouts do not count: a hang looks like a problem that is too large.
void CellBench::count_crashes(const Entry& entry) {
  int& in_a_row = crashes_[entry.contender];
  if (entry.row.status == "crashed") {
    ++in_a_row;
  } else if (entry.row.status != "timeout") {
    in_a_row = 0;
  }
}

// Clock and power: on a GPU the medians of the values read during its runs, on a CPU measured now.
void CellBench::read_state(Entry& entry) const {
  if (settings_.device == DeviceKind::cpu) {
    if (const double clock = measured_clock_mhz(); clock > 0) entry.row.clock_mhz = clock;
    entry.row.power_w = entry.meter->watts();
    return;
  }
  if (!entry.clocks_mhz.empty()) entry.row.clock_mhz = statistics_of(entry.clocks_mhz).median;
  if (!entry.powers_w.empty()) entry.row.power_w = statistics_of(entry.powers_w).median;
}

double CellBench::fastest_honest(const verification::Case& c) const {
  if (settings_.device == DeviceKind::cpu)
    return datasheet_flops(machine_, settings_.threads, c.dtype() != DType::fp32);
  const auto devices = cuda::device_facts();
  return devices.empty() ? 0 : cuda::datasheet_flops(devices.front(), c.dtype());
}

WorkerProcess& CellBench::worker(std::size_t contender) {
  auto& process = workers_[contender];
  if (!process) {
    // The inputs are shared and count once; a worker's own allocations must fit besides them. On a GPU the limit is for
    // the device's memory, and the worker enforces it.
    const std::int64_t limit = settings_.device == DeviceKind::cpu ? settings_.memory_limit : 0;
    const WorkerSettings settings{contenders_[contender].command, settings_.threads, limit};
    process = std::make_unique<WorkerProcess>(settings, inputs_);
  }
  return *process;
}

void CellBench::drop_all() {
  for (auto& process : workers_) {
    if (!process || !process->alive()) continue;
    try {
      process->call({{"command", "drop"}}, settings_.limits.timeout);
      process->outputs().resize(0);
    } catch (const WorkerFailure&) {  // the process has ended, and its memory is free
    }
  }
}

}  // namespace fovea::program

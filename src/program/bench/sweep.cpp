// The loop over cells. A row is on disk before the next cell starts.
#include "program/bench/sweep.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <unordered_map>

#include "core/printable.h"
#include "fmt/format.h"
#include "program/bench/against.h"
#include "program/bench/progress.h"
#include "program/bench/regret.h"
#include "program/bench/short_lines.h"
#include "program/bench/table.h"
#include "program/flash.h"
#include "program/interrupt.h"
#include "program/output_file.h"
#include "program/terminal_text.h"
#include "verification/problem_line.h"

namespace fovea::program {
namespace {

constexpr int kInterrupted = 130;
// flops/s of the slowest contender, including the check against the reference; on a GPU the check is sampled.
constexpr double kSlowRate = 2e9, kSlowGpuRate = 1e12;
constexpr double kGpuCheckSeconds = 5;

constexpr double kShortestSampling = 0.05;
constexpr double kLongRun = 60;  // seconds from which on a run tells where its time went

using Clock = std::chrono::steady_clock;

class Sweep {
 public:
  Sweep(CellBench& bench, const SweepSettings& settings, const Environment& environment)
      : bench_(bench), settings_(settings), total_(settings.cases.size() * bench.contenders().size()) {
    if (settings.output.empty()) return;
    file_ = std::make_unique<RecordFile>(settings.output, environment, settings.resume, settings.force);
    if (!file_->before().warning.empty()) std::fprintf(stderr, "fovea: %s\n", file_->before().warning.c_str());
    const Records& before = file_->before();
    for (std::size_t i = 0; i < before.rows.size(); ++i) {
      if (same_build(before.environments[before.environment_of_row[i]], environment))
        earlier_.emplace(key_of(before.rows[i]), before.rows[i]);
    }
  }

  int run() {
    std::vector<std::string> problems;
    for (const verification::Case& c : settings_.cases) problems.push_back(verification::line_of(c));
    Progress progress(total_, problems);
    const auto start = Clock::now();
    const auto seconds = [start] { return std::chrono::duration<double>(Clock::now() - start).count(); };
    const double longest = bench_.samples_for();
    try {
      std::size_t cells = 0;
      for (const verification::Case& c : settings_.cases) {
        if (settings_.budget_s > 0) {
          const std::size_t left = total_ - cells * bench_.contenders().size();
          bench_.sample_for(share_of_budget(settings_.budget_s - seconds(), left, longest));
        }
        run_cell(c, progress);
        progress.on_cell(++cells * bench_.contenders().size());
        done_ = progress.done();
      }
    } catch (const Interrupted&) {
      ended_ = kInterrupted;
    } catch (const OutputLost& full) {
      std::fprintf(stderr, "\nfovea: the disk is full, so the run stops: %s\n", full.what());
      ended_ = kOutputLost;
    }
    seconds_ = seconds();
    return ended_;
  }

  double seconds() const { return seconds_; }  // of the last run

  std::vector<Row>& rows() { return rows_; }
  std::size_t total() const { return total_; }
  std::size_t done() const { return done_; }

 private:
  void run_cell(const verification::Case& c, Progress& progress) {
    if (interrupted()) throw Interrupted{};
    const std::string line = verification::line_of(c);
    const auto wanted = [&](const std::string& implementation) {
      if (settings_.skip_lacking && lacks(*c.operation, implementation)) return false;
      const Row* const known = earlier(line, implementation);
      if (known != nullptr) keep(*known, progress);
      return known == nullptr;
    };
    for (Row& row : bench_.run(c, wanted, [&](const RoundReport& report) { progress.on_turn(report); }))
      store(std::move(row), progress);
  }

  // Whether another operation of the sweep has an implementation of this name, and this one has none.
  bool lacks(const verification::Operation& operation, const std::string& implementation) const {
    const std::string name = implementation.substr(0, implementation.find('@'));  // name@old, name@no_saved
    const auto has = [&name](const Operations& operations) {
      const std::vector<std::string> names = known_names(operations);
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    return !has({&operation}) && has(operations_of(settings_.cases));
  }

  const Row* earlier(const std::string& line, const std::string& implementation) const {
    const auto found = earlier_.find(key_of(line, implementation, bench_.threads(), bench_.timer()));
    return found == earlier_.end() ? nullptr : &found->second;
  }

  void store(Row row, Progress& progress) {
    if (file_) {
      try {
        file_->append(row);
      } catch (const OutputLost&) {
        std::fprintf(stderr, "%s\n", json_line(row).c_str());
        throw;
      }
    }
    if (settings_.json) std::printf("%s\n", json_line(row).c_str());
    keep(row, progress);
  }

  void keep(const Row& row, Progress& progress) {
    progress.on_row(row);
    rows_.push_back(row);
  }

  CellBench& bench_;
  const SweepSettings& settings_;
  std::size_t total_, done_ = 0;
  std::unique_ptr<RecordFile> file_;
  std::unordered_map<std::string, Row> earlier_;  // by key_of
  std::vector<Row> rows_;
  int ended_ = 0;
  double seconds_ = 0;
};

// Of a long run, for people who wait for it.
void print_spent_time(double seconds, const SpentSeconds& spent) {
  if (seconds < kLongRun) return;
  const auto share = [seconds](double part) { return 100 * part / seconds; };
  const std::string text = fmt::format(
      "took {}: {:.0f} % checks, {:.0f} % sampling, {:.0f} % first runs, {:.0f} % inputs\n", duration_text(seconds),
      share(spent.checks), share(spent.sampling), share(spent.runs), share(spent.inputs));
  std::fputs(text.c_str(), stderr);
}

// Rows without a time, once per implementation and reason: a refusal often concerns every problem.
void print_failures(const std::vector<Row>& rows) {
  std::vector<std::pair<const Row*, int>> failures;
  for (const Row& row : rows) {
    if (row.status == "ok") continue;
    const auto alike = std::find_if(failures.begin(), failures.end(), [&row](const auto& one) {
      return one.first->impl == row.impl && one.first->status == row.status && one.first->reason == row.reason;
    });
    if (alike == failures.end()) {
      failures.emplace_back(&row, 1);
    } else {
      ++alike->second;
    }
  }
  for (const auto& [row, problems] : failures) {
    const std::string head = core::printable(row->impl) + ": " + row->status;
    const std::string more = problems == 1 ? "" : fmt::format(", and {} more", problems - 1);
    std::fprintf(stderr, "%s\n  %s\n", wrapped(head + ": " + core::printable(row->reason), 2).c_str(),
                 wrapped(short_line(row->problem) + more, 4, 2).c_str());
  }
}

// The implementation that each problem's ratios refer to. `flash` resolves to different ones for different problems.
std::map<std::string, std::string> baselines_of(const CellBench& bench, const SweepSettings& settings) {
  std::map<std::string, std::string> baselines;
  for (const Contender& contender : bench.contenders()) {
    if (contender.name != settings.baseline) continue;
    for (const verification::Case& c : settings.cases)
      baselines[verification::line_of(c)] = plan_cell(contender, c).implementation;
  }
  return baselines;
}

// What `flash` became, with the numbers of problems.
std::map<std::string, int> flash_of(const CellBench& bench, const SweepSettings& settings) {
  std::map<std::string, int> became;
  for (const Contender& contender : bench.contenders()) {
    if (contender.name != kFlash) continue;
    for (const verification::Case& c : settings.cases) {
      if (const CellPlan plan = plan_cell(contender, c); plan.refusal.empty()) ++became[plan.implementation];
    }
  }
  return became;
}

void print_results(const CellBench& bench, const SweepSettings& settings, const std::vector<Row>& rows) {
  const BenchTable table =
      bench_table(rows, {.baselines = baselines_of(bench, settings), .flash = flash_of(bench, settings)});
  if (!settings.json) {
    print_failures(rows);
    std::fputs(terminal_text(table, colour_wanted(STDOUT_FILENO)).c_str(), stdout);
    std::fputs(against_summary(bench.contenders(), settings.cases, rows).c_str(), stdout);
    std::fputs(regret_summary(bench.contenders(), settings.cases, rows).c_str(), stdout);
    if (!settings.output.empty()) std::printf("records: %s\n", settings.output.c_str());
  }
  if (!settings.markdown.empty()) write_file(settings.markdown, markdown(table));
  if (!settings.csv.empty()) write_file(settings.csv, csv(rows));
}

// Ends a run that could not keep its table before it measures.
void check_exports(const SweepSettings& settings) {
  for (const std::string& path : {settings.markdown, settings.csv}) {
    if (!path.empty()) write_file(path, "", WriteMode::at_end);
  }
}

}  // namespace

double share_of_budget(double seconds_left, std::size_t rows_left, double longest) {
  const double share = seconds_left / static_cast<double>(std::max<std::size_t>(rows_left, 1)) / 2;
  return std::clamp(share, std::min(kShortestSampling, longest), longest);
}

double estimated_seconds(const std::vector<verification::Case>& cases, std::size_t contenders,
                         const SamplingLimits& limits) {
  double total = 0;
  for (const verification::Case& c : cases) {
    const bool on_gpu = c.device() == DeviceKind::cuda;
    const double flops = c.operation->cost(c).flops, once = flops / (on_gpu ? kSlowGpuRate : kSlowRate);
    if (on_gpu) total += std::min(kGpuCheckSeconds, flops / kSlowRate);
    const double samples = std::min(std::max(kEnoughSamples * once, kEnoughSeconds), limits.repeat_for);
    total += std::min(0.1 + samples + (kLeastSamples + 1) * once, limits.repeat_for + limits.timeout);
  }
  return total * static_cast<double>(contenders);
}

SweepEnd run_sweep(CellBench& bench, const SweepSettings& settings, const Environment& environment) {
  check_exports(settings);
  Sweep sweep(bench, settings, environment);
  if (settings.json) std::printf("%s\n", json_line(environment).c_str());
  int ended = sweep.run();
  print_spent_time(sweep.seconds(), bench.spent());
  std::vector<Row>& rows = sweep.rows();
  try {
    if (!rows.empty() && settings.table) print_results(bench, settings, rows);
  } catch (const OutputLost& lost) {
    std::fprintf(stderr, "fovea: the table was not written: %s\n", lost.what());
    ended = kOutputLost;
  }
  if (ended == kInterrupted) {
    std::fprintf(stderr, "%zu of %zu done%s%s\n", sweep.done(), sweep.total(),
                 settings.output.empty() ? "" : "; resume with ",
                 settings.output.empty() ? "" : settings.resume_command.c_str());
  }
  if (ended != 0) return {ended, std::move(rows)};
  const bool failed = std::any_of(rows.begin(), rows.end(), [](const Row& row) { return is_failure(row.status); });
  return {failed ? 1 : 0, std::move(rows)};
}

}  // namespace fovea::program

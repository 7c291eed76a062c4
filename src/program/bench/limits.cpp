// The cells of limits, and the table of what they reached.
#include "program/bench/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "program/bench/contender.h"
#include "program/bench/short_lines.h"
#include "program/bench/table.h"
#include "program/terminal_text.h"
#include "verification/problem_line.h"

namespace fovea::program {
namespace {

using verification::Case;

constexpr std::string_view kBaselines[] = {"naive", "vectorized", "fused"};
constexpr const char* kPyTorch = "torch.sdpa";

std::vector<Case> cells_of(const Limit& limit, Scale scale) {
  return verification::parse_sweep(scale == Scale::quick && !limit.quick.empty() ? limit.quick : limit.line);
}

void add_once(std::vector<Case>& cases, const std::vector<Case>& more) {
  for (const Case& c : more) {
    if (std::find(cases.begin(), cases.end(), c) == cases.end()) cases.push_back(c);
  }
}

class TimedRows {
 public:
  explicit TimedRows(const std::vector<Row>& rows) : rows_(rows) {}

  const Row* find(const Case& c, const std::string& implementation, int threads) const {
    const std::string line = verification::line_of(c);
    const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const Row& row) {
      return row.problem == line && row.impl == implementation && row.threads == threads && row.time_s;
    });
    return found == rows_.end() ? nullptr : &*found;
  }

 private:
  const std::vector<Row>& rows_;
};

// 0 if the run has none of this name.
double ceiling(const RunCeilings& ceilings, int threads, const std::string& name) {
  const auto run = ceilings.find(threads);
  if (run == ceilings.end()) return 0;
  const auto rate = run->second.find(name);
  return rate == run->second.end() ? 0 : rate->second;
}

// Of one cell, in the limit's measure; nullopt if a time is missing.
std::optional<double> value_of(const Limit& limit, const Case& c, const TimedRows& cells, const RunCeilings& ceilings) {
  const std::string name = plan_cell({.name = limit.implementation, .command = {}, .ours = true}, c).implementation;
  const Row* const row = cells.find(c, name, limit.threads);
  if (row == nullptr) return std::nullopt;
  const double time = row->time_s->median;
  switch (limit.measure) {
    case Measure::seconds:
      return time;
    case Measure::peak:
      return row->ceiling_share;
    case Measure::peak_of_avx2: {
      const double fma = ceiling(ceilings, limit.threads, "fma_fp32");
      const double avx2 = ceiling(ceilings, limit.threads, "fma_fp32_avx2");
      if (!row->ceiling_share) return std::nullopt;
      return avx2 > 0 ? *row->ceiling_share * fma / avx2 : *row->ceiling_share;
    }
    case Measure::bound: {
      const double bandwidth = ceiling(ceilings, limit.threads, "read_bandwidth");
      if (!row->ceiling || bandwidth == 0) return std::nullopt;
      return std::max(row->bytes / bandwidth, row->flops / row->ceiling->flops_per_s) / time;
    }
    case Measure::threads: {
      const Row* const one = cells.find(c, name, 1);
      return one == nullptr ? std::nullopt : std::optional(one->time_s->median / time);
    }
    case Measure::points_of_fp32: {
      const Case wide = c.with("dtype", "fp32");
      const std::string wide_name =
          plan_cell({.name = limit.implementation, .command = {}, .ours = true}, wide).implementation;
      const Row* const fp32 = cells.find(wide, wide_name, limit.threads);
      if (fp32 == nullptr || !fp32->ceiling_share || !row->ceiling_share) return std::nullopt;
      return *fp32->ceiling_share - *row->ceiling_share;
    }
    case Measure::baselines: {
      std::optional<double> best;
      for (const std::string_view baseline : kBaselines) {
        const Row* const other = cells.find(c, std::string(baseline), limit.threads);
        if (other != nullptr) best = std::min(best.value_or(INFINITY), other->time_s->median / time);
      }
      return best;
    }
    case Measure::pytorch: {
      const Row* const other = cells.find(c, kPyTorch, limit.threads);
      return other == nullptr ? std::nullopt : std::optional(other->time_s->median / time);
    }
  }
  return std::nullopt;
}

bool smaller_is_better(Measure measure) { return measure == Measure::seconds || measure == Measure::points_of_fp32; }

bool meets(const Limit& limit, double value, double wanted) {
  return smaller_is_better(limit.measure) ? value <= wanted : value >= wanted;
}

std::string text_of(Measure measure, double value) {
  switch (measure) {
    case Measure::seconds:
      return time_text(value);
    case Measure::threads:
    case Measure::baselines:
    case Measure::pytorch:
      return fmt::format("{:.2f}×", value);
    case Measure::points_of_fp32:
      return fmt::format("{:+.1f} pt", -value * 100);
    case Measure::peak:
    case Measure::peak_of_avx2:
    case Measure::bound:
      return fmt::format("{:.1f} %", value * 100);
  }
  return "";
}

const char* name_of(Measure measure) {
  switch (measure) {
    case Measure::peak:
      return "peak";
    case Measure::peak_of_avx2:
      return "AVX2 peak";
    case Measure::bound:
      return "bound";
    case Measure::threads:
      return "one thread";
    case Measure::baselines:
      return "baselines";
    case Measure::pytorch:
      return "PyTorch";
    case Measure::points_of_fp32:
      return "fp32";
    case Measure::seconds:
      return "time";
  }
  return "";
}

}  // namespace

std::vector<LimitRun> runs_of(const std::vector<Limit>& limits, Scale scale) {
  std::vector<LimitRun> runs;
  const auto add = [&runs](int threads, std::vector<std::string> names, const std::vector<Case>& cases) {
    const auto same = std::find_if(runs.begin(), runs.end(), [&](const LimitRun& run) {
      return run.threads == threads && run.implementations == names;
    });
    add_once(same == runs.end() ? runs.emplace_back(LimitRun{threads, std::move(names), {}}).cases : same->cases,
             cases);
  };
  for (const Limit& limit : limits) {
    std::vector<Case> cases = cells_of(limit, scale);
    if (limit.measure == Measure::threads) add(1, {limit.implementation}, cases);
    if (limit.measure == Measure::points_of_fp32) {
      for (const Case& c : cells_of(limit, scale)) cases.push_back(c.with("dtype", "fp32"));
    }
    std::vector<std::string> names{limit.implementation};
    if (limit.measure == Measure::baselines || limit.measure == Measure::bound)
      names.insert(names.end(), std::begin(kBaselines), std::end(kBaselines));
    add(limit.threads, std::move(names), cases);
  }
  return runs;
}

Reached reached(const Limit& limit, Scale scale, const std::vector<Row>& rows, const RunCeilings& ceilings) {
  const TimedRows cells(rows);
  Reached result;
  for (const Case& c : cells_of(limit, scale)) {
    ++result.cells;
    const std::optional<double> value = value_of(limit, c, cells, ceilings);
    if (!value) {
      ++result.missing;
      continue;
    }
    if (!meets(limit, *value, limit.must)) ++result.short_of_must;
    if (result.problem.empty() || !meets(limit, *value, result.value)) {
      result.value = *value;
      result.problem = verification::line_of(c);
    }
  }
  return result;
}

std::string limits_text(const std::vector<Limit>& limits, Scale scale, const std::vector<Row>& rows,
                        const RunCeilings& ceilings) {
  std::vector<std::vector<std::string>> table{{"limit", "against", "worst", "must", "aim", "short"}};
  std::string below;
  bool all_met = true;
  for (const Limit& limit : limits) {
    const Reached got = reached(limit, scale, rows, ceilings);
    const bool timed = !got.problem.empty();
    const bool met = timed && got.short_of_must == 0 && got.missing == 0;
    all_met = all_met && met;
    table.push_back({limit.title, name_of(limit.measure), timed ? text_of(limit.measure, got.value) : "none",
                     text_of(limit.measure, limit.must), text_of(limit.measure, limit.aim),
                     met ? "0" : fmt::format("{} of {}", got.short_of_must + got.missing, got.cells)});
    if (timed && got.short_of_must > 0)
      below +=
          wrapped(fmt::format("{}, {}: {}", limit.title, text_of(limit.measure, got.value), short_line(got.problem)),
                  2) +
          "\n";
  }
  std::string end = all_met ? "Every must is met.\n" : "";
  if (!below.empty()) end = "The worst cell of each limit that is not met:\n" + below;
  return aligned(table) + end;
}

}  // namespace fovea::program

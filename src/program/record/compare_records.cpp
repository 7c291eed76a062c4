// Pairing, verdicts from quartile intervals, geometric means.
#include "program/record/compare_records.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "program/bench/sampler.h"

namespace fovea::program {
namespace {

constexpr double kSmallChange = 0.005;  // smaller differences count as the same
constexpr double kWideSpread = 0.1;     // with a wider spread, equal medians do not mean equal times
constexpr double kClockChange = 0.03;

// Medians of the turns in which the samples were taken (of about kTurnSeconds, or as many short ones of a GPU), without
// the outer tenths.
struct TurnMedians {
  double least = HUGE_VAL, most = 0;
};
TurnMedians turn_medians(const TimeStatistics& t) {
  std::vector<double> medians, turn;
  double seconds = 0;
  for (const double sample : t.samples) {
    turn.push_back(sample);
    seconds += sample;
    if (seconds < kTurnSeconds) continue;
    medians.push_back(statistics_of(std::move(turn)).median);
    turn.clear();
    seconds = 0;
  }
  if (medians.size() < 2) return {t.median, t.median};
  std::sort(medians.begin(), medians.end());
  const std::size_t outer = medians.size() / 10;
  return {medians[outer], medians[medians.size() - 1 - outer]};
}

bool turns_overlap(const TimeStatistics& a, const TimeStatistics& b) {
  const TurnMedians before = turn_medians(a), after = turn_medians(b);
  return before.least <= after.most && after.least <= before.most;
}

double spread_of(const TimeStatistics& t) { return t.q3 - t.q1; }
bool holds(const TimeStatistics& interval, double value) { return interval.q1 <= value && value <= interval.q3; }
bool credible(const Row& row) { return row.time_s->median > 0 && !row.has_flag("impossible"); }
std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

using Conditions = std::vector<std::pair<std::string, std::set<std::string>>>;

Conditions conditions_of(const Records& records) {
  std::set<std::string> machines, threads, compilers, builds;
  const auto fact = [](const Environment& e, const char* name) {
    const auto found = e.facts.find(name);
    return found == e.facts.end() ? std::string("unknown") : found->second;
  };
  for (const Environment& e : records.environments) {
    machines.insert(e.machine);
    compilers.insert(fact(e, "compiler"));
    builds.insert(fact(e, "build"));
  }
  for (const Row& row : records.rows) {
    machines.insert(row.machine);
    threads.insert(std::to_string(row.threads));
  }
  return {{"machine", machines}, {"threads", threads}, {"compiler", compilers}, {"build", builds}};
}

using RowsByKey = std::unordered_map<std::string, const Row*>;

std::string pairing_key(const Row& row, bool with_threads) {
  return with_threads ? key_of(row) : key_of(row.problem, row.impl, 0, row.timer);
}

RowsByKey index_of(const Records& records, bool with_threads) {
  RowsByKey index;
  for (const Row& row : records.rows) index[pairing_key(row, with_threads)] = &row;
  return index;
}

bool one_thread_count(const Records& records) {
  return std::all_of(records.rows.begin(), records.rows.end(),
                     [&](const Row& row) { return row.threads == records.rows.front().threads; });
}

// Notes a different clock, which may explain a change better than the code does.
void note_clock(Comparison& comparison) {
  double sum = 0;
  int cells = 0;
  for (const ComparedCell& cell : comparison.cells) {
    if (!cell.a->clock_mhz || !cell.b->clock_mhz || *cell.a->clock_mhz <= 0 || *cell.b->clock_mhz <= 0) continue;
    sum += std::log(*cell.b->clock_mhz / *cell.a->clock_mhz);
    ++cells;
  }
  const double change = cells > 0 ? std::exp(sum / cells) - 1 : 0;
  if (std::abs(change) < kClockChange) return;
  comparison.notes.push_back(fmt::format("the mean clock was {} {} in B, over {} cells", percent(std::abs(change)),
                                         change > 0 ? "higher" : "lower", cells));
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  constexpr std::string_view words[] = {"same", "faster", "slower", "unclear"};
  return words[static_cast<int>(verdict)];
}

Judgement judge(const Row& a, const Row& b, const Runs& runs) {
  const TimeStatistics &before = *a.time_s, &after = *b.time_s;
  Judgement result{Verdict::unclear, after.median / before.median, ""};
  if (!credible(a) || !credible(b)) return result.reason = "a time is flagged impossible", result;
  if (const auto fewest = std::min(before.n, after.n); fewest < kLeastSamples) {
    return result.reason = fmt::format("{} sample{}, wanted {}", fewest, fewest == 1 ? "" : "s", kLeastSamples), result;
  }
  const double gap = std::abs(after.median - before.median);
  const double wider = std::max(spread_of(before), spread_of(after));
  const bool apart = before.q3 < after.q1 || after.q3 < before.q1;
  const std::string figures =
      fmt::format("medians {} apart, spreads {} and {}", percent(gap / before.median),
                  percent(spread_of(before) / before.median), percent(spread_of(after) / after.median));
  result.reason = figures;
  const bool differs = apart && gap > wider && gap >= kSmallChange * before.median;
  if (gap < kSmallChange * before.median && wider < kWideSpread * before.median) {
    result.verdict = Verdict::same;
  } else if (differs && runs.one_build) {
    result.reason = "one build, so runs differ: " + figures;
  } else if (differs && turns_overlap(before, after)) {
    result.reason = "turns overlap: " + figures;
  } else if (differs && gap <= runs.spread) {
    result.reason = fmt::format("runs of one build are {} apart: ", percent(runs.spread / before.median)) + figures;
  } else if (differs) {
    result.verdict = after.median > before.median ? Verdict::slower : Verdict::faster;
  } else if (wider >= kWideSpread * before.median) {
    result.reason = "too noisy: " + figures;
  } else if (holds(before, after.median) && holds(after, before.median)) {
    result.verdict = Verdict::same;
  } else {
    result.reason = (apart ? "a gap within the spreads: " : "the quartile intervals overlap: ") + figures;
  }
  return result;
}

std::int64_t Comparison::count(Verdict verdict) const {
  return std::count_if(cells.begin(), cells.end(),
                       [verdict](const ComparedCell& cell) { return cell.judgement.verdict == verdict; });
}

bool Comparison::any_slower() const {
  return count(Verdict::slower) > 0 || std::any_of(status_changes.begin(), status_changes.end(),
                                                   [](const auto& change) { return change.first->status == "ok"; });
}

std::vector<std::string> condition_differences(const Records& a, const Records& b) {
  const Conditions left = conditions_of(a), right = conditions_of(b);
  std::vector<std::string> differences;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i].second == right[i].second) continue;
    differences.push_back(fmt::format("{}: `{}` in A, `{}` in B", left[i].first, fmt::join(left[i].second, "`, `"),
                                      fmt::join(right[i].second, "`, `")));
  }
  return differences;
}

Comparison compare_records(const Records& a, const Records& b, bool across_threads, const std::vector<Records>& again) {
  const bool with_threads = !across_threads || !one_thread_count(a) || !one_thread_count(b);
  const RowsByKey in_a = index_of(a, with_threads), in_b = index_of(b, with_threads);
  std::vector<RowsByKey> in_again;
  for (const Records& more : again) in_again.push_back(index_of(more, with_threads));
  const auto environment_of = [](const Records& records, const Row& row) -> const Environment& {
    return records.environments[records.environment_of_row[static_cast<std::size_t>(&row - records.rows.data())]];
  };
  // A digest tells sources apart, and so does a commit without changes. Older records have no digest.
  const auto one_build = [](const Environment& one, const Environment& other) {
    if (one.source_digest.empty() || other.source_digest.empty()) return !one.source.dirty && same_build(one, other);
    return one.source_digest == other.source_digest;
  };
  const auto runs_of = [&](const Row& before, const Row& after) {
    Runs runs{.one_build = before.machine == after.machine && before.threads == after.threads &&
                           one_build(environment_of(a, before), environment_of(b, after))};
    for (const RowsByKey& more : in_again) {
      const auto found = more.find(pairing_key(before, with_threads));
      if (found != more.end() && found->second->time_s)
        runs.spread = std::max(runs.spread, std::abs(found->second->time_s->median - before.time_s->median));
    }
    return runs;
  };
  Comparison comparison;
  for (const Row& row : a.rows) {
    const auto found = in_b.find(pairing_key(row, with_threads));
    if (found == in_b.end()) {
      comparison.only_a.push_back(&row);
    } else if (row.status != found->second->status) {
      comparison.status_changes.emplace_back(&row, found->second);
    } else if (row.status == "ok") {
      comparison.cells.push_back({&row, found->second, judge(row, *found->second, runs_of(row, *found->second))});
    }
  }
  for (const Row& row : b.rows) {
    if (!in_a.contains(pairing_key(row, with_threads))) comparison.only_b.push_back(&row);
  }
  note_clock(comparison);
  return comparison;
}

std::map<std::string, GeometricMean> geometric_means(const Comparison& comparison) {
  std::map<std::string, GeometricMean> means;
  for (const ComparedCell& cell : comparison.cells) {
    if (cell.judgement.verdict == Verdict::unclear) continue;
    for (const std::string& name : {cell.a->impl, std::string()}) {
      GeometricMean& mean = means[name];
      mean.ratio = std::exp((std::log(mean.ratio) * static_cast<double>(mean.cells) + std::log(cell.judgement.ratio)) /
                            static_cast<double>(mean.cells + 1));
      ++mean.cells;
    }
  }
  return means;
}

}  // namespace fovea::program

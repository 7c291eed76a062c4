// Loading, ordering and grouping of rows.
#include "program/report_study.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <set>
#include <tuple>

#include "attention/mask.h"
#include "core/check.h"
#include "core/names.h"
#include "program/record/record_file.h"

namespace fovea::program {
namespace {

constexpr std::string_view kBaselines[] = {"naive", "vectorized", "fused"};

bool begins(std::string_view text, std::string_view with) { return text.substr(0, with.size()) == with; }

// Baselines first, then the reference, then peers, then this library: the eye ends on what the report is about.
int rank_of(std::string_view implementation) {
  const auto* const found = std::find(std::begin(kBaselines), std::end(kBaselines), implementation);
  if (found != std::end(kBaselines)) return static_cast<int>(found - std::begin(kBaselines));
  if (begins(implementation, "cpu.") || begins(implementation, "cuda.")) return 6;
  return implementation == "reference" ? 4 : 5;
}

bool names_peer(std::string_view implementation) { return rank_of(implementation) == 5; }

// Whatever ran it and however it was timed: peers of a CPU have a timer of their own.
std::string problem_key(const Row& row) {
  return fmt::format("{} | {} | {}", row.problem, threads_of(row), row.machine);
}

// How many peers a record timed, by problem.
std::map<std::string, std::size_t> peers_timed(const std::vector<Row>& rows) {
  std::map<std::string, std::size_t> peers;
  for (const Row& row : rows) peers[problem_key(row)] += names_peer(row.impl) && is_timed(row);
  return peers;
}

std::vector<std::string> implementations_of(const std::vector<Measured>& rows) {
  std::vector<std::string> names;
  for (const Measured& one : rows) {
    if (std::find(names.begin(), names.end(), one.row.impl) == names.end()) names.push_back(one.row.impl);
  }
  std::stable_sort(names.begin(), names.end(), [](const auto& a, const auto& b) { return rank_of(a) < rank_of(b); });
  return names;
}

std::string plural(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

// What all configurations of a group share; also the group's title.
std::string title_of(const verification::AttentionCase& c, GroupBy by, const std::string& run_by) {
  const AttentionProblem& p = c.problem;
  std::string title = word_of(c.pass) + ", " + std::string(core::name_of(p.dtype)) + ", ";
  title += p.mask == Mask::none ? "no mask" : core::text_of(p.mask);
  if (by == GroupBy::lengths) {
    title += ", d=" + std::to_string(p.dim_qk) + (p.dim_v == p.dim_qk ? "" : "/" + std::to_string(p.dim_v));
  }
  title += ", " + plural(p.heads_q, "head");
  if (p.heads_kv != p.heads_q) title += " (" + std::to_string(p.heads_kv) + " of keys)";
  title += ", batch " + std::to_string(p.batch);
  if (c.layout != verification::Layout::bhld) title += ", layout " + std::string(verification::name_of(c.layout));
  if (p.device.kind != DeviceKind::cpu) title += ", " + std::string(core::name_of(p.device.kind));
  if (c.data != "normal") title += ", data " + c.data;
  if (c.place != "contiguous") title += ", " + c.place;
  return title + run_by;
}

auto order_of(const verification::AttentionCase& c) {
  const AttentionProblem& p = c.problem;
  return std::tuple(p.dim_qk, p.dim_v, p.len_k, p.len_q, p.scale, c.seed);
}

Configuration& configuration_for(Group& group, const verification::AttentionCase& problem) {
  for (Configuration& one : group.configurations) {
    if (one.problem == problem) return one;
  }
  return group.configurations.emplace_back(Configuration{problem, {}});
}

std::string shorten(std::int64_t length) {
  return length >= 1024 && length % 1024 == 0 ? std::to_string(length / 1024) + "k" : std::to_string(length);
}

}  // namespace

std::string_view Measured::role() const {
  return begins(row.impl, "cpu.") || begins(row.impl, "cuda.") ? std::string_view("flash") : std::string_view(row.impl);
}

bool Measured::is_peer() const { return names_peer(row.impl); }

Study load_study(const std::vector<std::string>& paths, std::string_view baseline) {
  Study study;
  struct Origin {
    std::size_t environment = 0, peers = 0;
  };
  std::vector<Origin> origins;  // of the study's rows
  std::map<std::string, std::size_t> place_of;
  for (const std::string& path : paths) {
    Records records = load_records(path);
    if (!records.warning.empty()) study.warnings.push_back(records.warning);
    const std::size_t first = study.environments.size();
    std::move(records.environments.begin(), records.environments.end(), std::back_inserter(study.environments));
    const auto peers = peers_timed(records.rows);
    for (std::size_t i = 0; i < records.rows.size(); ++i) {
      Row& row = records.rows[i];
      const std::string key = key_of(row) + " | " + row.machine;
      verification::AttentionCase problem = verification::attention_case(row.problem);
      const Origin origin{first + records.environment_of_row[i], peers.at(problem_key(row))};
      const auto [found, is_new] = place_of.try_emplace(key, study.rows.size());
      if (is_new) {
        study.rows.emplace_back();
        origins.emplace_back();
      }
      if (origin.peers < origins[found->second].peers) continue;
      study.rows[found->second] = {std::move(row), std::move(problem), nullptr};
      origins[found->second] = origin;
    }
  }
  for (std::size_t i = 0; i < study.rows.size(); ++i) {
    study.rows[i].environment = &study.environments.at(origins[i].environment);
  }
  study.implementations = implementations_of(study.rows);
  const auto apart = std::stable_partition(study.rows.begin(), study.rows.end(), [](const Measured& one) {
    return one.row.timer != "cuda_graph" && !one.row.times_the_host();
  });
  study.calls.assign(std::make_move_iterator(apart), std::make_move_iterator(study.rows.end()));
  study.rows.erase(apart, study.rows.end());
  for (const Measured* const one : study.all()) {  // flash names whichever implementation of this library ran
    if (baseline == "flash" && one->role() == "flash") baseline = one->row.impl;
  }
  std::vector<std::string> comparable = implementations_of(study.rows);
  if (comparable.empty()) comparable = study.implementations;
  study.baseline = !baseline.empty() || comparable.empty() ? baseline : comparable.front();
  if (!baseline.empty() &&
      std::find(study.implementations.begin(), study.implementations.end(), baseline) == study.implementations.end()) {
    std::string known;
    for (const auto& name : study.implementations) known += (known.empty() ? "" : ", ") + name;
    const std::string near = core::nearest_word(baseline, study.implementations);
    core::fail({Status::invalid_argument,
                "report",
                "baseline",
                "no row has this implementation",
                std::string(baseline),
                "one of " + known,
                near.empty() ? "" : "did you mean `" + near + "`?",
                {}});
  }
  return study;
}

std::vector<const Measured*> Study::all() const {
  std::vector<const Measured*> every;
  for (const auto* const part : {&rows, &calls}) {
    for (const Measured& one : *part) every.push_back(&one);
  }
  return every;
}

const Measured* Configuration::find(std::string_view implementation) const {
  const auto found = by_implementation.find(std::string(implementation));
  return found == by_implementation.end() ? nullptr : found->second;
}

const Measured* Configuration::fastest() const {
  std::vector<const Row*> rows;
  for (const auto& [name, one] : by_implementation) rows.push_back(&one->row);
  const Row* const best = fastest_of(rows);
  return best == nullptr ? nullptr : find(best->impl);
}

const Measured* Configuration::fastest_peer() const {
  const Measured* best = nullptr;
  for (const auto& [name, one] : by_implementation) {
    if (!one->is_peer() || !one->timed() || one->row.has_flag("impossible")) continue;
    if (best == nullptr || one->seconds() < best->seconds()) best = one;
  }
  return best;
}

std::vector<Group> groups_of(const Study& study, GroupBy by) {
  std::set<std::string> machines;
  std::set<int> threads;
  for (const Measured& one : study.rows) machines.insert(one.row.machine), threads.insert(threads_of(one.row));
  // Named where the records differ in it.
  const auto run_by = [&](const Row& row) {
    const std::string timer = timer_word(row);
    const int own = threads_of(row);
    return (timer.empty() ? "" : ", " + timer) + (threads.size() > 1 && own > 0 ? ", " + plural(own, "thread") : "") +
           (machines.size() > 1 ? ", " + row.machine : "");
  };
  std::vector<Group> groups;
  std::map<std::string, std::size_t> place_of;
  for (const Measured& one : study.rows) {
    const std::string title = title_of(one.problem, by, run_by(one.row));
    const auto [found, is_new] = place_of.try_emplace(title, groups.size());
    if (is_new) groups.push_back({title, one.problem.pass, {}});
    configuration_for(groups[found->second], one.problem).by_implementation[one.row.impl] = &one;
  }
  for (Group& group : groups) {
    std::sort(group.configurations.begin(), group.configurations.end(),
              [](const auto& a, const auto& b) { return order_of(a.problem) < order_of(b.problem); });
  }
  std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    const auto key = [](const Group& g) {
      const AttentionProblem& p = g.configurations.front().problem.problem;
      return std::tuple(g.pass, p.heads_q * p.batch, p.batch, p.dtype, p.dim_qk, p.mask);
    };
    return key(a) < key(b);
  });
  return groups;
}

int threads_of(const Row& row) { return row.problem.find(" device=cuda ") == std::string::npos ? row.threads : 0; }

std::string timer_word(const Row& row) { return row.timer == "cuda_events_hot" ? "hot" : ""; }

std::optional<double> speed_up(const Configuration& configuration, std::string_view implementation,
                               std::string_view baseline) {
  const Measured* const own = configuration.find(implementation);
  const Measured* const base = configuration.find(baseline);
  if (own == nullptr || base == nullptr || !own->timed() || !base->timed()) return std::nullopt;
  if (own->row.has_flag("impossible") || base->row.has_flag("impossible")) return std::nullopt;
  return base->seconds() / own->seconds();
}

bool speed_up_ranked(const Configuration& configuration, std::string_view implementation, std::string_view baseline) {
  const Measured* const own = configuration.find(implementation);
  const Measured* const base = configuration.find(baseline);
  return own != nullptr && base != nullptr && own->ranked() && base->ranked() && told_apart(own->row, base->row);
}

std::optional<PowerLaw> fit_power_law(const Group& group, std::string_view implementation) {
  std::vector<std::pair<double, double>> points;  // logarithms of length and seconds, lengths ascending
  for (const Configuration& configuration : group.configurations) {
    const Measured* const one = configuration.find(implementation);
    const AttentionProblem& p = configuration.problem.problem;
    if (one == nullptr || !one->timed() || one->row.has_flag("impossible") || p.len_q != p.len_k) continue;
    points.emplace_back(std::log(static_cast<double>(p.len_q)), std::log(one->seconds()));
  }
  const std::size_t used = std::max<std::size_t>(3, (points.size() + 1) / 2);
  if (points.size() < 3) return std::nullopt;
  points.erase(points.begin(), points.end() - static_cast<std::ptrdiff_t>(used));
  if (points.back().first - points.front().first < std::log(3.9)) return std::nullopt;
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [at, value] : points) {
    n += 1;
    x += at;
    y += value;
    xx += at * at;
    xy += at * value;
  }
  const double exponent = (n * xy - x * y) / (n * xx - x * x);
  PowerLaw law{exponent, std::exp((y - exponent * x) / n), std::llround(std::exp(points.front().first)),
               std::llround(std::exp(points.back().first))};
  for (const Configuration& configuration : group.configurations) {
    const Measured* const one = configuration.find(implementation);
    law.noisy = law.noisy || (one != nullptr && one->noisy() && configuration.problem.problem.len_q >= law.from);
  }
  return law;
}

namespace {

// The load of the machine when the session began, if it was more than the session itself brings; else 0.
double other_load(const Environment& environment) {
  const auto fact = environment.facts.find("load");
  const double load = fact == environment.facts.end() ? 0 : std::round(std::strtod(fact->second.c_str(), nullptr));
  return load > environment.threads ? load : 0;
}

}  // namespace

std::string conditions_of(const std::vector<const Measured*>& rows) {
  std::set<std::string> machines, threads, dates, commits, peers;
  std::int64_t fewest = 0, most = 0;
  double load = 0;
  for (const Measured* const one : rows) {
    const auto& facts = one->environment->facts;
    const auto cpu = facts.find("cpu");
    const auto gpu = facts.find("gpu");
    const bool on_gpu = one->problem.problem.device.kind == DeviceKind::cuda && gpu != facts.end();
    machines.insert(on_gpu ? gpu->second : cpu != facts.end() ? cpu->second : one->row.machine);
    if (const int own = threads_of(one->row); own > 0) threads.insert(plural(own, "thread"));
    dates.insert(one->environment->date.substr(0, 10));
    commits.insert(one->row.source.commit.substr(0, 10) + (one->row.source.dirty ? " (modified)" : ""));
    if (!one->row.peer.empty()) peers.insert(one->row.peer);
    load = std::max(load, other_load(*one->environment));
    if (!one->timed()) continue;
    fewest = fewest == 0 ? one->row.time_s->n : std::min(fewest, one->row.time_s->n);
    most = std::max(most, one->row.time_s->n);
  }
  const auto join = [](const std::set<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); };
  std::string text = join(machines);
  if (!threads.empty()) text += "; " + join(threads);
  if (most > 0) {
    text +=
        "; " + (fewest == most ? plural(most, "sample") : fmt::format("{} to {} samples", fewest, most)) + " a cell";
  }
  if (!peers.empty()) text += "; " + join(peers);
  text += "; " + join(dates) + "; commit " + join(commits);
  return load == 0 ? text : text + fmt::format("; other work on the machine: load {:.0f}", load);
}

std::string conditions_of(const Group& group) {
  std::vector<const Measured*> rows;
  for (const Configuration& configuration : group.configurations) {
    for (const auto& [name, one] : configuration.by_implementation) rows.push_back(one);
  }
  return conditions_of(rows);
}

std::string word_of(verification::CasePass pass) {
  return pass == verification::CasePass::fwd   ? "forward"
         : pass == verification::CasePass::bwd ? "backward"
                                               : "forward + backward";
}

std::string length_of(const verification::AttentionCase& problem) {
  const AttentionProblem& p = problem.problem;
  return p.len_q == p.len_k ? shorten(p.len_q) : shorten(p.len_q) + ":" + shorten(p.len_k);
}

std::string sizes_of(const verification::AttentionCase& c) {
  const AttentionProblem& p = c.problem;
  return fmt::format("length {}, d={}, {}, {}, batch {}, {} head{}{}", length_of(c), p.dim_qk, core::name_of(p.dtype),
                     p.mask == Mask::none ? "no mask" : core::text_of(p.mask), p.batch, p.heads_q,
                     p.heads_q == 1 ? "" : "s", p.device.kind == DeviceKind::cpu ? "" : ", on the GPU");
}

std::string status_word(std::string_view status) { return status == "oom" ? "OOM" : std::string(status); }

}  // namespace fovea::program

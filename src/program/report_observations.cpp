// The rules behind the key observations.
#include "program/report_observations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/names.h"
#include "program/report_calls.h"
#include "program/report_tables.h"

namespace fovea::program {
namespace {

std::string count_of(std::size_t n, const std::string& noun) {
  return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
}

bool is_own(const Measured& one) { return one.role() == "flash"; }

std::vector<std::string> own_implementations(const Study& study) {
  std::vector<std::string> own;
  for (const Measured& one : study.rows) {
    if (is_own(one) && std::find(own.begin(), own.end(), one.row.impl) == own.end()) own.push_back(one.row.impl);
  }
  return own;
}

// Of this library's implementations if it took part, else of all: whom the sentences are about.
std::vector<std::string> subjects_of(const Study& study) {
  std::vector<std::string> subjects = own_implementations(study);
  return subjects.empty() ? study.implementations : subjects;
}

// Speed-ups over the baseline, losses as plainly as wins.
void say_speed_ups(const Study& study, const std::vector<Group>& groups, std::vector<std::string>& said) {
  for (const std::string& name : subjects_of(study)) {
    if (name == study.baseline) continue;
    for (const verification::CasePass pass : verification::kCasePasses) {
      const SpeedUps ups = speed_ups_of(groups, pass, name, study.baseline);
      if (ups.ratios.empty()) continue;
      std::string text =
          fmt::format("{}, {}: {} the speed of {} in the geometric mean of {}", name, word_of(pass),
                      format_ratio(ups.mean), study.baseline, count_of(ups.ratios.size(), "configuration"));
      if (ups.ratios.size() > 1) {
        text += fmt::format("; least {} ({}), most {} ({})", format_ratio(ups.least), sizes_of(ups.worst_at->problem),
                            format_ratio(ups.most), sizes_of(ups.best_at->problem));
      }
      said.push_back(text + (ups.losses == 0 ? "; slower in none." : fmt::format("; slower in {}.", ups.losses)));
    }
  }
}

// The harder comparison: with whichever of the others is fastest at each configuration.
void say_against_the_best(const Study& study, const std::vector<Group>& groups, std::vector<std::string>& said) {
  for (const std::string& name : own_implementations(study)) {
    double logarithms = 0;
    std::size_t n = 0, losses = 0;
    const Configuration* worst_at = nullptr;
    double worst = 0;
    std::string winner;
    for (const Group& group : groups) {
      for (const Configuration& configuration : group.configurations) {
        const Measured* const own = configuration.find(name);
        const Measured* best = nullptr;
        for (const auto& [other, one] : configuration.by_implementation) {
          if (is_own(*one) || !one->ranked()) continue;
          if (best == nullptr || one->seconds() < best->seconds()) best = one;
        }
        if (own == nullptr || !own->ranked() || best == nullptr || !told_apart(own->row, best->row)) continue;
        const double ratio = best->seconds() / own->seconds();
        logarithms += std::log(ratio);
        ++n;
        losses += ratio < 1;
        if (worst_at == nullptr || ratio < worst) {
          worst = ratio;
          worst_at = &configuration;
          winner = best->row.impl;
        }
      }
    }
    if (n == 0) continue;
    said.push_back(
        fmt::format("{} against the fastest of the others: {} in the geometric mean of {}; slower in {}; least "
                    "{} ({} {} at {}).",
                    name, format_ratio(std::exp(logarithms / static_cast<double>(n))), count_of(n, "configuration"),
                    losses == 0 ? "none" : std::to_string(losses), format_ratio(worst), winner,
                    word_of(worst_at->problem.pass), sizes_of(worst_at->problem)));
  }
}

// The compiled form is the baseline that is hardest to beat, and each type has kernels of its own.
void say_against_fused(const Study& study, const std::vector<Group>& groups, std::vector<std::string>& said) {
  std::map<DType, std::vector<Group>> by_type;
  for (const Group& group : groups) by_type[group.configurations.front().problem.problem.dtype].push_back(group);
  for (const std::string& name : own_implementations(study)) {
    for (const auto& [type, of_type] : by_type) {
      const SpeedUps ups = speed_ups_of(of_type, verification::CasePass::fwd, name, "fused");
      if (ups.ratios.empty()) continue;
      said.push_back(fmt::format("{}, {}: slower than fused in {} of {}; least {} ({}).", name, core::name_of(type),
                                 ups.losses == 0 ? "none" : std::to_string(ups.losses),
                                 count_of(ups.ratios.size(), "forward cell"), format_ratio(ups.least),
                                 sizes_of(ups.worst_at->problem)));
    }
  }
}

// The fitted exponents of each pass, in the group that reaches farthest.
void say_growth(const Study& study, std::vector<std::string>& said) {
  for (const verification::CasePass pass : verification::kCasePasses) {
    std::string best;
    std::int64_t farthest = 0;
    for (const Group& group : groups_of(study, GroupBy::lengths)) {
      if (group.pass != pass) continue;
      std::string text;
      std::int64_t reach = 0;
      bool noisy = false;
      for (const std::string& name : study.implementations) {
        const auto law = fit_power_law(group, name);
        if (!law) continue;
        text += fmt::format("{}{} n^{:.2f}", text.empty() ? "" : ", ", name, law->exponent);
        reach = std::max(reach, law->to);
        noisy = noisy || law->noisy;
      }
      if (reach > farthest) {
        farthest = reach;
        best = fmt::format("Time grows with the length n up to {} ({}) as {}{}.", reach, group.title, text,
                           noisy ? "; some of these times are noisy" : "");
      }
    }
    if (!best.empty()) said.push_back(best);
  }
}

// State between forward and backward, at the configuration where the baseline holds most.
void say_memory(const Study& study, const std::vector<Group>& groups, std::vector<std::string>& said) {
  const auto bytes_at = [](const Configuration& c, const std::string& name) {
    const Measured* const one = c.find(name);
    if (one == nullptr || !one->timed() || one->problem.pass == verification::CasePass::fwd) return std::int64_t{0};
    return one->row.memory_before_backward_bytes.value_or(0);
  };
  for (const std::string& name : own_implementations(study)) {
    const Configuration* at = nullptr;
    for (const Group& group : groups) {
      for (const Configuration& configuration : group.configurations) {
        if (bytes_at(configuration, name) == 0) continue;
        if (at == nullptr || bytes_at(configuration, study.baseline) > bytes_at(*at, study.baseline))
          at = &configuration;
      }
    }
    if (at == nullptr || bytes_at(*at, study.baseline) == 0 || name == study.baseline) continue;
    const auto held = static_cast<double>(bytes_at(*at, study.baseline));
    const auto own = static_cast<double>(bytes_at(*at, name));
    said.push_back(fmt::format("Before backward {} holds {}, {} the {} of {}, at {}.", study.baseline,
                               format_bytes(held), format_ratio(held / own), format_bytes(own), name,
                               sizes_of(at->problem)));
  }
}

void say_ceiling(const Study& study, std::vector<std::string>& said) {
  for (const std::string& name : own_implementations(study)) {
    const Measured* best = nullptr;
    for (const Measured& one : study.rows) {
      if (one.row.impl != name || !one.ranked() || !one.row.ceiling_share) continue;
      if (best == nullptr || *one.row.ceiling_share > *best->row.ceiling_share) best = &one;
    }
    if (best == nullptr) continue;
    said.push_back(fmt::format("{} reaches at most {:.0f} % of the ceiling measured in the same run ({}; {} at {}){}.",
                               name, *best->row.ceiling_share * 100, format_rate(best->row.flops / best->seconds()),
                               word_of(best->problem.pass), sizes_of(best->problem),
                               *best->row.ceiling_share > 1 ? "; above 100 % the machine gave the probes less" : ""));
  }
}

// The error over that of a plain evaluation in the same type, where it is largest.
void say_accuracy(const Study& study, std::vector<std::string>& said) {
  for (const std::string& name : own_implementations(study)) {
    const Measured* worst_at = nullptr;
    std::string tensor;
    double worst = 0;
    for (const Measured& one : study.rows) {
      if (one.row.impl != name) continue;
      for (const auto& [of, error] : one.row.error) {
        if (!(error.ratio_to_plain > worst)) continue;
        worst = error.ratio_to_plain;
        worst_at = &one;
        tensor = of;
      }
    }
    if (worst_at == nullptr) continue;
    said.push_back(
        fmt::format("The error of {} is at most {} that of a plain evaluation in the same type ({}, {} at {}).", name,
                    format_ratio(worst), tensor, word_of(worst_at->problem.pass), sizes_of(worst_at->problem)));
  }
}

void say_failures(const Study& study, std::vector<std::string>& said) {
  for (const std::string_view status : kRowStatuses) {
    if (status == "ok") continue;
    for (const std::string& name : study.implementations) {
      std::size_t n = 0;
      const Measured* shortest = nullptr;
      for (const Measured* const row : study.all()) {
        const Measured& one = *row;
        if (one.row.status != status || one.row.impl != name) continue;
        ++n;
        const auto length = [](const Measured& m) { return m.problem.problem.len_k; };
        if (shortest == nullptr || length(one) < length(*shortest)) shortest = &one;
      }
      if (n == 0) continue;
      said.push_back(fmt::format("{}: {} in {}, first at {}{}.", name, status_word(status), count_of(n, "cell"),
                                 sizes_of(shortest->problem),
                                 shortest->row.reason.empty() ? "" : " (" + shortest->row.reason + ")"));
    }
  }
}

void say_flags(const Study& study, std::vector<std::string>& said) {
  constexpr std::pair<std::string_view, std::string_view> flags[] = {
      {"impossible", "shown, but neither ranked nor counted above"},
      {"launch_bound", "shown, but neither ranked nor counted above"},
      {"noisy", "counted above only where the quartiles of the compared cells do not overlap"},
      {"host_bound",
       "shown, but neither ranked nor counted above: their times may hold that of the host that enqueues"},
      {"low_probe", "the best library product or the cell itself beat the probe, which is no ceiling there"}};
  for (const auto& [flag, meaning] : flags) {
    const auto n = static_cast<std::size_t>(std::count_if(study.rows.begin(), study.rows.end(),
                                                          [f = flag](const auto& one) { return one.row.has_flag(f); }));
    if (n == 0) continue;
    said.push_back(fmt::format("{} of {} flagged {}: {}.", n, count_of(study.rows.size(), "cell"), flag, meaning));
  }
}

// Forward and backward together should take what they take one by one.
void say_sums(const Study& study, std::vector<std::string>& said) {
  std::map<std::string, const Measured*> by_key;
  for (const Measured& one : study.rows) by_key[one.row.problem + one.row.impl + one.row.timer] = &one;
  std::size_t compared = 0, outside = 0;
  for (const Measured& one : study.rows) {
    if (one.problem.pass != verification::CasePass::e2e || !one.ranked() || one.noisy()) continue;
    double sum = 0;
    bool both = true;
    for (const verification::CasePass pass : {verification::CasePass::fwd, verification::CasePass::bwd}) {
      verification::AttentionCase part = one.problem;
      part.pass = pass;
      part.problem.pass = pass == verification::CasePass::bwd ? Pass::backward : Pass::forward;
      const auto found = by_key.find(verification::line_of(part) + one.row.impl + one.row.timer);
      both = both && found != by_key.end() && found->second->ranked() && !found->second->noisy();
      if (both) sum += found->second->seconds();
    }
    if (!both) continue;
    ++compared;
    outside += one.seconds() < 0.9 * sum || one.seconds() > 1.2 * sum;
  }
  if (compared == 0) return;
  said.push_back(
      fmt::format("Forward and backward together take 0.9 to 1.2 times the sum of the two alone in {} of {}.",
                  compared - outside, count_of(compared, "cell")));
}

}  // namespace

std::string headline_of(const Study& study) {
  const auto groups = groups_of(study, GroupBy::lengths_and_dims);
  std::map<std::string, std::size_t> wins;
  std::size_t configurations = 0, decided = 0;
  for (const Group& group : groups) {
    for (const Configuration& configuration : group.configurations) {
      ++configurations;
      if (const Measured* const best = configuration.fastest()) {
        ++decided;
        ++wins[best->row.impl];
      }
    }
  }
  if (configurations == 0 && !study.calls.empty())
    return fmt::format("{} of calls in a graph or of the host's time, by {}: {}.", count_of(study.calls.size(), "cell"),
                       count_of(study.implementations.size(), "implementation"),
                       fmt::join(study.implementations, ", "));
  std::string text =
      fmt::format("{} by {}: {}.", count_of(configurations, "configuration"),
                  count_of(study.implementations.size(), "implementation"), fmt::join(study.implementations, ", "));
  std::vector<std::pair<std::size_t, std::string>> order;
  for (const auto& [name, n] : wins) order.emplace_back(n, name);
  std::sort(order.rbegin(), order.rend());
  std::string list;
  for (const auto& [n, name] : order) list += fmt::format("{}{} in {}", list.empty() ? "" : ", ", name, n);
  if (decided > 0) text += fmt::format(" Fastest of the {} that can be ranked: {}.", decided, list);
  return text;
}

std::vector<std::string> observations_of(const Study& study) {
  const auto groups = groups_of(study, GroupBy::lengths_and_dims);
  std::vector<std::string> said;
  say_speed_ups(study, groups, said);
  say_against_the_best(study, groups, said);
  say_against_fused(study, groups, said);
  say_growth(study, said);
  say_memory(study, groups, said);
  say_ceiling(study, said);
  say_accuracy(study, said);
  say_sums(study, said);
  for (std::string& sentence : said_of_calls(study)) said.push_back(std::move(sentence));
  say_failures(study, said);
  say_flags(study, said);
  return said;
}

}  // namespace fovea::program

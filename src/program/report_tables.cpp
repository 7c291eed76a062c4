// Building of tables from rows. Nothing here knows a result; every word and figure comes from the rows.
#include "program/report_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "attention/mask.h"
#include "core/names.h"

namespace fovea::program {
namespace {

struct FlagWord {
  std::string_view flag, mark, meaning;
};
constexpr FlagWord kFlags[] = {
    {"impossible", "!", "faster than the hardware's floor, so wrong; not ranked"},
    {"noisy", "n", "samples spread widely; ranked only where the quartiles of two cells do not overlap"},
    {"launch_bound", "l", "so short that the call itself dominates; not ranked"},
    {"low_probe", "p", "the probe is no ceiling there: the best library product or the row itself beat it"},
    {"host_bound", "h", "may hold the time of the host that enqueues; not ranked"},
    {"few_samples", "", "fewer samples than asked for"},
    {"sampled_check", "", "checked on sampled rows and keys"},
};

std::string note_of(const Row& row) {
  const TimeStatistics& t = *row.time_s;
  std::string note =
      fmt::format("median {} ms, mean {} ms, std {} ms, min {} ms, {} samples", format_milliseconds(t.median),
                  format_milliseconds(t.mean), format_milliseconds(t.std), format_milliseconds(t.min), t.n);
  for (const FlagWord& one : kFlags) {
    if (row.has_flag(one.flag)) note += fmt::format("; {}: {}", one.flag, one.meaning);
  }
  return note + "\n" + row.problem;
}

Cell text(std::string words) { return {std::move(words)}; }

Cell count(std::size_t n) { return {std::to_string(n), Emphasis::none, {}, {}, static_cast<double>(n)}; }

Cell figure(std::string words, double value, Emphasis emphasis = Emphasis::none) {
  return {std::move(words), emphasis, {}, {}, value};
}

std::string identifier(std::string_view title) {
  std::string id;
  for (const char c : title) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      id += c;
    } else if (!id.empty() && id.back() != '-') {
      id += '-';
    }
  }
  while (!id.empty() && id.back() == '-') id.pop_back();
  return id;
}

Table time_table(const Study& study, const Group& group) {
  std::vector<std::string> present;
  for (const auto& name : study.implementations) {
    const auto& all = group.configurations;
    if (std::any_of(all.begin(), all.end(), [&](const auto& c) { return c.find(name) != nullptr; })) {
      present.push_back(name);
    }
  }
  std::vector<const Configuration*> all;
  for (const Configuration& one : group.configurations) all.push_back(&one);
  const std::vector<std::string> compared = beside_peers(study, all);
  Table table{"time-" + identifier(group.title),
              group.title,
              "Median time, \u00b1 half the interquartile range; rate of the operations that the problem asks. Fastest "
              "in bold. Speed-up over " +
                  study.baseline + ". " + conditions_of(group) + ".",
              {{"d"}, {"length"}}};
  for (const auto& name : present) table.columns.push_back({name, "ms"});
  for (const auto& name : present) {
    if (name != study.baseline) table.columns.push_back({name, "speed-up"});
  }
  for (const auto& name : compared) table.columns.push_back({name, kOverPeers});
  for (const Configuration& configuration : group.configurations) {
    const AttentionProblem& p = configuration.problem.problem;
    std::vector<Cell> row{figure(std::to_string(p.dim_qk), static_cast<double>(p.dim_qk)),
                          figure(length_of(configuration.problem), static_cast<double>(p.len_q))};
    for (const auto& name : present) row.push_back(time_cell(configuration, name));
    for (const auto& name : present) {
      if (name != study.baseline) row.push_back(speed_up_cell(configuration, name, study.baseline));
    }
    for (const auto& name : compared) row.push_back(over_peers_cell(configuration, name));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string range_of(const SpeedUps& ups) { return format_ratio(ups.least) + " to " + format_ratio(ups.most); }

// Median over the configurations of the share of the ceiling that was reached.
double median_share(const std::vector<Group>& groups, verification::CasePass pass, std::string_view name) {
  std::vector<double> shares;
  for (const Group& group : groups) {
    if (group.pass != pass) continue;
    for (const Configuration& configuration : group.configurations) {
      const Measured* const one = configuration.find(name);
      if (one != nullptr && one->ranked() && one->row.ceiling_share) shares.push_back(*one->row.ceiling_share);
    }
  }
  if (shares.empty()) return std::nan("");
  std::nth_element(shares.begin(), shares.begin() + static_cast<std::ptrdiff_t>(shares.size() / 2), shares.end());
  return shares[shares.size() / 2];
}

std::vector<Cell> summary_row(const Study& study, const std::vector<Group>& groups, verification::CasePass pass,
                              const std::string& name) {
  std::size_t asked = 0, timed = 0, fastest = 0, ranked = 0;
  for (const Group& group : groups) {
    if (group.pass != pass) continue;
    for (const Configuration& configuration : group.configurations) {
      const Measured* const one = configuration.find(name);
      if (one == nullptr) continue;
      ++asked;
      timed += one->timed();
      const Measured* const best = configuration.fastest();
      ranked += best != nullptr && one->timed();
      fastest += best == one;
    }
  }
  if (asked == 0) return {};
  const SpeedUps ups = speed_ups_of(groups, pass, name, study.baseline);
  const double share = median_share(groups, pass, name);
  const bool has = !ups.ratios.empty() && name != study.baseline;
  return {text(word_of(pass)),
          text(name),
          count(asked),
          count(timed),
          figure(fmt::format("{} of {}", fastest, ranked), static_cast<double>(fastest)),
          has ? figure(format_ratio(ups.mean), ups.mean, ups.mean < 1 ? Emphasis::loss : Emphasis::none) : text("-"),
          has ? text(range_of(ups)) : text("-"),
          has ? figure(std::to_string(ups.losses), static_cast<double>(ups.losses),
                       ups.losses > 0 ? Emphasis::loss : Emphasis::none)
              : text("-"),
          std::isnan(share) ? text("-") : figure(fmt::format("{:.0f} %", share * 100), share)};
}

// The largest value of one figure over the passes of a problem: each pass records the same state.
Cell bytes_cell(const std::vector<const Measured*>& rows, std::optional<std::int64_t> Row::*member) {
  std::optional<std::int64_t> most;
  std::string word;
  for (const Measured* const one : rows) {
    if (member == &Row::memory_before_backward_bytes && one->problem.pass == verification::CasePass::fwd) continue;
    if (one->row.*member) most = std::max(most.value_or(0), *(one->row.*member));
    if (!one->timed()) word = status_word(one->row.status);
  }
  if (!most) return word.empty() ? text("-") : Cell{word, Emphasis::word};
  return {format_bytes(static_cast<double>(*most)),
          Emphasis::none,
          {},
          std::to_string(*most) + " bytes",
          static_cast<double>(*most)};
}

}  // namespace

Cell time_cell(const Configuration& configuration, std::string_view implementation) {
  const Measured* const one = configuration.find(implementation);
  if (one == nullptr) return {"-", Emphasis::muted, {}, "not measured"};
  if (!one->timed()) return {status_word(one->row.status), Emphasis::word, {}, one->row.reason};
  const TimeStatistics& t = *one->row.time_s;
  Cell cell{
      format_milliseconds(t.median) + flag_marks(one->row), Emphasis::none, {}, note_of(one->row), t.median * 1e3};
  cell.detail =
      "\u00b1 " + format_milliseconds((t.q3 - t.q1) / 2, 2) + " \u00b7 " + format_rate(one->row.flops / t.median);
  if (!one->ranked() || one->noisy()) cell.emphasis = Emphasis::muted;
  if (configuration.fastest() == one) cell.emphasis = Emphasis::best;
  return cell;
}

Cell speed_up_cell(const Configuration& configuration, std::string_view implementation, std::string_view baseline) {
  const auto ratio = speed_up(configuration, implementation, baseline);
  if (!ratio) {
    const Measured* const one = configuration.find(implementation);
    const Measured* const base = configuration.find(baseline);
    for (const Measured* const side : {one, base}) {
      if (side != nullptr && !side->timed()) return {status_word(side->row.status), Emphasis::word};
    }
    return {"-", Emphasis::muted};
  }
  const bool ranked = speed_up_ranked(configuration, implementation, baseline);
  return figure(format_ratio(*ratio), *ratio, !ranked ? Emphasis::muted : *ratio < 1 ? Emphasis::loss : Emphasis::none);
}

std::vector<std::string> beside_peers(const Study& study, const std::vector<const Configuration*>& configurations) {
  std::vector<std::string> names;
  for (const auto& name : study.implementations) {
    const bool beside = std::any_of(configurations.begin(), configurations.end(), [&](const Configuration* at) {
      const Measured* const one = at->find(name);
      return one != nullptr && one->role() == "flash" && at->fastest_peer() != nullptr;
    });
    if (beside) names.push_back(name);
  }
  return names;
}

Cell over_peers_cell(const Configuration& configuration, std::string_view implementation) {
  const Measured* const peer = configuration.fastest_peer();
  if (peer == nullptr) return {"-", Emphasis::muted};
  Cell cell = speed_up_cell(configuration, implementation, peer->row.impl);
  cell.note = "over " + peer->row.impl;
  return cell;
}

std::string flag_marks(const Row& row) {
  std::string marks;
  for (const FlagWord& one : kFlags) {
    if (row.has_flag(one.flag)) marks += one.mark;
  }
  return marks.empty() ? "" : " " + marks;
}

std::string flags_legend() {
  std::string legend;
  for (const FlagWord& one : kFlags) {
    if (!one.mark.empty())
      legend += fmt::format("{}{}: {} ({})", legend.empty() ? "" : "; ", one.mark, one.flag, one.meaning);
  }
  return legend;
}

SpeedUps speed_ups_of(const std::vector<Group>& groups, verification::CasePass pass, std::string_view implementation,
                      std::string_view baseline) {
  SpeedUps ups;
  double logarithms = 0;
  for (const Group& group : groups) {
    if (group.pass != pass) continue;
    for (const Configuration& configuration : group.configurations) {
      if (!speed_up_ranked(configuration, implementation, baseline)) continue;
      const double ratio = *speed_up(configuration, implementation, baseline);
      if (ups.ratios.empty() || ratio > ups.most) {
        ups.most = ratio;
        ups.best_at = &configuration;
      }
      if (ups.ratios.empty() || ratio < ups.least) {
        ups.least = ratio;
        ups.worst_at = &configuration;
      }
      ups.ratios.push_back(ratio);
      ups.losses += ratio < 1;
      logarithms += std::log(ratio);
    }
  }
  if (!ups.ratios.empty()) ups.mean = std::exp(logarithms / static_cast<double>(ups.ratios.size()));
  return ups;
}

Table summary_table(const Study& study) {
  const auto groups = groups_of(study, GroupBy::lengths_and_dims);
  std::vector<const Measured*> rows;
  for (const Measured& one : study.rows) rows.push_back(&one);
  Table table{
      "summary",
      "Who is fastest, and by how much",
      "Speed-ups are over " + study.baseline +
          ": geometric mean, least and most, and how many are below 1. Only cells that can be told apart are counted: "
          "flagged impossible, launch-bound or host-bound is out, flagged noisy is in where the quartiles do not "
          "overlap. " +
          conditions_of(rows) + ".",
      {{"pass", {}, false},
       {"implementation", {}, false},
       {"cells"},
       {"timed"},
       {"fastest in"},
       {"mean speed-up"},
       {"range"},
       {"losses"},
       {"median share of ceiling"}}};
  for (const verification::CasePass pass : verification::kCasePasses) {
    for (const auto& name : study.implementations) {
      if (auto row = summary_row(study, groups, pass, name); !row.empty()) table.rows.push_back(std::move(row));
    }
  }
  return table;
}

std::vector<Table> time_tables(const Study& study) {
  std::vector<Table> tables;
  for (const Group& group : groups_of(study, GroupBy::lengths_and_dims)) tables.push_back(time_table(study, group));
  return tables;
}

Table memory_table(const Study& study) {
  // Passes share a row: the state between forward and backward is that of the problem.
  std::map<std::string, std::map<std::string, std::vector<const Measured*>>> by_problem;
  std::vector<std::pair<std::string, verification::AttentionCase>> order;
  std::vector<const Measured*> all;
  for (const Measured& one : study.rows) {
    verification::AttentionCase problem = one.problem;
    problem.pass = verification::CasePass::fwd;
    problem.problem.pass = Pass::forward;
    const std::string line = verification::line_of(problem);
    if (by_problem.count(line) == 0) order.emplace_back(line, problem);
    by_problem[line][one.row.impl].push_back(&one);
    all.push_back(&one);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    const auto key = [](const verification::AttentionCase& c) {
      const AttentionProblem& p = c.problem;
      return std::tuple(p.heads_q * p.batch, p.batch, p.dtype, p.mask, p.dim_qk, p.len_k);
    };
    return key(a.second) < key(b.second);
  });
  Table table{"memory",
              "Bytes held, by problem",
              "Before backward: inputs, outputs and saved state, counted from the allocations (1 MB = 10^6 bytes). "
              "Scratch: most workspace at once in any pass. " +
                  conditions_of(all) + ".",
              {{"type", {}, false}, {"mask", {}, false}, {"batch"}, {"heads"}, {"d"}, {"length"}}};
  for (const auto& name : study.implementations) table.columns.push_back({name, "before backward"});
  for (const auto& name : study.implementations) table.columns.push_back({name, "scratch"});
  for (const auto& [line, problem] : order) {
    const AttentionProblem& p = problem.problem;
    std::vector<Cell> row{text(std::string(core::name_of(p.dtype))), text(core::text_of(p.mask))};
    for (const std::int64_t size : {p.batch, p.heads_q, p.dim_qk}) {
      row.push_back(figure(std::to_string(size), static_cast<double>(size)));
    }
    row.push_back(figure(length_of(problem), static_cast<double>(p.len_q)));
    for (const auto member : {&Row::memory_before_backward_bytes, &Row::workspace_bytes}) {
      for (const auto& name : study.implementations) row.push_back(bytes_cell(by_problem[line][name], member));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table accuracy_table(const Study& study) {
  struct Worst {
    std::size_t cells = 0;
    ErrorFigures error{-1, -1, -1};
  };
  std::map<std::tuple<std::size_t, DType, std::string>, Worst> worst;
  std::vector<const Measured*> all;
  for (const Measured* const row : study.all()) {
    const Measured& one = *row;
    const auto place = std::find(study.implementations.begin(), study.implementations.end(), one.row.impl);
    for (const auto& [tensor, error] : one.row.error) {
      Worst& w =
          worst[{static_cast<std::size_t>(place - study.implementations.begin()), one.problem.problem.dtype, tensor}];
      ++w.cells;
      w.error = {std::fmax(w.error.rel_l2, error.rel_l2), std::fmax(w.error.max_abs, error.max_abs),
                 std::fmax(w.error.ratio_to_plain, error.ratio_to_plain)};
    }
    all.push_back(&one);
  }
  Table table{"accuracy",
              "Worst error, by implementation, type and tensor",
              "Worst over all cells of the error against double precision. Ratio to plain: the error over that of a "
              "plain evaluation in the same type, floor included; a time is shown only where it is at most 2 forward "
              "and 3 backward. " +
                  conditions_of(all) + ".",
              {{"implementation", {}, false},
               {"type", {}, false},
               {"tensor", {}, false},
               {"cells checked"},
               {"relative error"},
               {"largest error"},
               {"ratio to plain"}}};
  for (const auto& [key, w] : worst) {
    table.rows.push_back({text(study.implementations.at(std::get<0>(key))),
                          text(std::string(core::name_of(std::get<1>(key)))), text(std::get<2>(key)), count(w.cells),
                          figure(fmt::format("{:.1e}", w.error.rel_l2), w.error.rel_l2),
                          figure(fmt::format("{:.1e}", w.error.max_abs), w.error.max_abs),
                          figure(format_figure(w.error.ratio_to_plain), w.error.ratio_to_plain)});
  }
  return table;
}

Table failures_table(const Study& study) {
  Table table{"without-a-time",
              "Cells without a time",
              "Every row whose status is not ok, with the reason recorded; whole problem lines are in rows.csv.",
              {{"status", {}, false}, {"implementation", {}, false}, {"problem", {}, false}, {"reason", {}, false}}};
  for (const Measured* const row : study.all()) {
    const Measured& one = *row;
    if (one.timed()) continue;
    table.rows.push_back(
        {{status_word(one.row.status), Emphasis::word},
         text(one.row.impl),
         {word_of(one.problem.pass) + ", " + sizes_of(one.problem), Emphasis::none, {}, one.row.problem},
         text(one.row.reason)});
  }
  return table;
}

}  // namespace fovea::program

// A line per shape, where the tables of times have one per length.
#include "program/report_rates.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "attention/mask.h"
#include "core/names.h"

namespace fovea::program {
namespace {

constexpr std::string_view kPeer = "torch.flash";

using Shapes = std::vector<const Configuration*>;

const Measured& first_row_of(const Configuration& one) { return *one.by_implementation.begin()->second; }

// The implementations that have a row here, in the study's order.
std::vector<std::string> present_in(const Study& study, const Shapes& shapes) {
  std::vector<std::string> names;
  for (const auto& name : study.implementations) {
    if (std::any_of(shapes.begin(), shapes.end(), [&](const auto* one) { return one->find(name) != nullptr; }))
      names.push_back(name);
  }
  return names;
}

// Implementations of this library, where the peer was timed as well.
std::vector<std::string> compared_in(const std::vector<std::string>& present, const Shapes& shapes) {
  std::vector<std::string> names;
  if (std::find(present.begin(), present.end(), kPeer) == present.end()) return names;
  for (const auto& name : present) {
    const bool own = std::any_of(shapes.begin(), shapes.end(), [&](const auto* one) {
      const Measured* const row = one->find(name);
      return row != nullptr && row->role() == "flash";
    });
    if (own) names.push_back(name);
  }
  return names;
}

Cell rate_cell(const Configuration& at, const std::string& name) {
  const Measured* const one = at.find(name);
  if (one == nullptr) return {"-", Emphasis::muted, {}, "not measured"};
  if (!one->timed()) return {status_word(one->row.status), Emphasis::word, {}, one->row.reason};
  const double rate = one->row.flops / one->seconds() / 1e12;
  const Emphasis emphasis = !one->ranked() ? Emphasis::muted : at.fastest() == one ? Emphasis::best : Emphasis::none;
  return {format_figure(rate), emphasis, {}, format_milliseconds(one->seconds()) + " ms", rate};
}

Cell ratio_cell(const Configuration& at, const std::string& name) {
  const auto ratio = speed_up(at, name, kPeer);
  if (!ratio) return {"-", Emphasis::muted};
  const bool ranked = speed_up_ranked(at, name, kPeer);
  return {format_ratio(*ratio),
          !ranked      ? Emphasis::muted
          : *ratio < 1 ? Emphasis::loss
                       : Emphasis::none,
          {},
          {},
          *ratio};
}

std::vector<Cell> line_of(const Configuration& at, const std::vector<std::string>& present,
                          const std::vector<std::string>& compared, const std::vector<std::string>& beside) {
  const AttentionProblem& p = at.problem.problem;
  const auto integer = [](std::int64_t n) {
    return Cell{std::to_string(n), Emphasis::none, {}, {}, static_cast<double>(n)};
  };
  const std::string heads =
      std::to_string(p.heads_q) + (p.heads_q == p.heads_kv ? "" : ":" + std::to_string(p.heads_kv));
  std::vector<Cell> cells{
      {core::text_of(p.mask)}, integer(p.dim_qk), integer(p.batch), {heads}, {length_of(at.problem)}};
  for (const auto& name : present) cells.push_back(rate_cell(at, name));
  for (const auto& name : compared) cells.push_back(ratio_cell(at, name));
  for (const auto& name : beside) cells.push_back(over_peers_cell(at, name));
  return cells;
}

Table table_of(const Study& study, const std::string& title, Shapes shapes) {
  std::stable_sort(shapes.begin(), shapes.end(), [](const auto* a, const auto* b) {
    const auto key = [](const Configuration* one) {
      const AttentionProblem& p = one->problem.problem;
      return std::tuple(p.mask, p.dim_qk, p.len_q, p.len_k, p.batch, p.heads_q);
    };
    return key(a) < key(b);
  });
  const auto present = present_in(study, shapes), compared = compared_in(present, shapes),
             beside = beside_peers(study, shapes);
  std::vector<const Measured*> rows;
  for (const auto* one : shapes) {
    for (const auto& [name, row] : one->by_implementation) rows.push_back(row);
  }
  std::string id = "rate-" + title;
  std::replace_if(
      id.begin(), id.end(), [](char c) { return c == ' ' || c == ',' || c == '+'; }, '-');
  Table table{id,
              "Rates on a GPU: " + title,
              "Operations that the problem asks over the median time; fastest in bold. " + conditions_of(rows) + ".",
              {{"mask", {}, false}, {"d"}, {"batch"}, {"heads"}, {"length"}}};
  for (const auto& name : present) table.columns.push_back({name, "TFLOP/s"});
  for (const auto& name : compared) table.columns.push_back({name, "speed-up over " + std::string(kPeer)});
  for (const auto& name : beside) table.columns.push_back({name, kOverPeers});
  for (const auto* one : shapes) table.rows.push_back(line_of(*one, present, compared, beside));
  return table;
}

}  // namespace

std::vector<Table> rate_tables(const Study& study) {
  const std::vector<Group> groups = groups_of(study, GroupBy::lengths_and_dims);
  std::map<std::pair<verification::CasePass, std::string>, Shapes> by_title;
  for (const Group& group : groups) {
    for (const Configuration& one : group.configurations) {
      if (one.problem.problem.device.kind != DeviceKind::cuda) continue;
      const std::string timer = timer_word(first_row_of(one).row);
      by_title[{one.problem.pass, word_of(one.problem.pass) + ", " +
                                      std::string(core::name_of(one.problem.problem.dtype)) +
                                      (timer.empty() ? "" : ", " + timer)}]
          .push_back(&one);
    }
  }
  std::vector<Table> tables;
  for (const auto& [key, shapes] : by_title) tables.push_back(table_of(study, key.second, shapes));
  return tables;
}

}  // namespace fovea::program

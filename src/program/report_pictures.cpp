// Turns groups of rows into panels, series and points. All ranking, fitting and wording is done before drawing.
#include "program/report_pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/names.h"
#include "program/report_published_pictures.h"
#include "program/report_table.h"
#include "program/report_tables.h"

namespace fovea::program {
namespace {

using Json = nlohmann::ordered_json;
using verification::CasePass;

constexpr std::size_t kMostPanels = 12;  // of one picture; more make several pictures
constexpr std::size_t kMostRows = 32;    // of one heat map

std::string_view key_of(CasePass pass) { return verification::name_of(pass); }

// The title of a group without its pass, which stands in the picture's title.
std::string panel_title(const Group& group) { return group.title.substr(word_of(group.pass).size() + 2); }

double length_axis(const verification::AttentionCase& c) { return static_cast<double>(c.problem.len_k); }

std::vector<const Measured*> rows_of(const std::vector<const Group*>& groups) {
  std::vector<const Measured*> rows;
  for (const Group* group : groups) {
    for (const Configuration& configuration : group->configurations) {
      for (const auto& [name, one] : configuration.by_implementation) rows.push_back(one);
    }
  }
  return rows;
}

Json picture(std::string name, std::string_view kind, std::string title, std::string description,
             std::string conditions) {
  return {{"name", std::move(name)},
          {"kind", kind},
          {"title", std::move(title)},
          {"description", std::move(description)},
          {"conditions", std::move(conditions)},
          {"panels", Json::array()}};
}

using PointMaker = std::function<Json(const Configuration&, const Measured&)>;  // null: no point here

// A panel with one series per implementation. Cells without a time leave their word at their length.
Json panel_of(const Study& study, const Group& group, const PointMaker& point_of, bool with_fit) {
  Json series = Json::array();
  for (const std::string& name : study.implementations) {
    Json points = Json::array(), missing = Json::array();
    for (const Configuration& configuration : group.configurations) {
      const Measured* const one = configuration.find(name);
      if (one == nullptr) continue;
      const double x = length_axis(configuration.problem);
      if (!one->timed()) {
        missing.push_back({{"x", x}, {"word", status_word(one->row.status)}});
      } else if (Json point = point_of(configuration, *one); !point.is_null()) {
        point["x"] = x;
        point["clean"] = one->ranked() && !one->noisy();
        points.push_back(std::move(point));
      }
    }
    if (points.empty() && missing.empty()) continue;
    Json one{{"implementation", name}, {"points", points}, {"missing", missing}};
    if (const auto law = fit_power_law(group, name); with_fit && law) {
      one["fit"] = {
          {"exponent", law->exponent}, {"coefficient", law->coefficient}, {"from", law->from}, {"to", law->to}};
    }
    series.push_back(std::move(one));
  }
  return {{"title", panel_title(group)}, {"series", series}};
}

// Which of how many pictures that belong together; a single one says nothing of it.
struct Part {
  std::size_t number, of;
  std::string in_name() const { return of > 1 ? fmt::format("-{}", number) : ""; }
  std::string in_title() const { return of > 1 ? fmt::format(" ({} of {})", number, of) : ""; }
};

// Pictures of one kind, one or more for every pass.
struct LengthPictures {
  std::string kind, title, description;
  PointMaker point;
  bool with_fit = false;
  std::vector<CasePass> passes = {CasePass::fwd, CasePass::bwd, CasePass::e2e};
};

void add_by_length(Json& pictures, const Study& study, const std::vector<Group>& groups, const LengthPictures& what) {
  for (const CasePass pass : what.passes) {
    std::vector<const Group*> chosen;  // a single length is no curve; the heat map has it
    for (const Group& group : groups) {
      if (group.pass == pass && group.configurations.size() > 1) chosen.push_back(&group);
    }
    const std::size_t parts = (chosen.size() + kMostPanels - 1) / kMostPanels;
    for (std::size_t start = 0; start < chosen.size(); start += kMostPanels) {
      const std::vector<const Group*> part(
          chosen.begin() + static_cast<std::ptrdiff_t>(start),
          chosen.begin() + static_cast<std::ptrdiff_t>(std::min(start + kMostPanels, chosen.size())));
      const Part numbered{start / kMostPanels + 1, parts};
      const std::string title = what.passes.size() > 1 ? fmt::format("{}, {}", what.title, word_of(pass)) : what.title;
      Json one = picture(fmt::format("{}-{}{}", what.kind, key_of(pass), numbered.in_name()), what.kind,
                         title + numbered.in_title(), what.description, conditions_of(rows_of(part)));
      one["baseline"] = study.baseline;
      for (const Group* group : part) one["panels"].push_back(panel_of(study, *group, what.point, what.with_fit));
      pictures.push_back(std::move(one));
    }
  }
}

Json seconds_point(const Configuration&, const Measured& one) {
  if (one.row.has_flag("impossible")) return nullptr;
  const TimeStatistics& t = *one.row.time_s;
  return {{"y", t.median}, {"low", t.q1}, {"high", t.q3}};
}

// What a cell holds: between forward and backward if there is a backward, else while the forward runs.
Json memory_point(const Configuration&, const Measured& one) {
  if (!one.row.memory_before_backward_bytes) return nullptr;
  const bool forward = one.problem.pass == CasePass::fwd;
  return {{"y", *one.row.memory_before_backward_bytes + (forward ? one.row.workspace_bytes.value_or(0) : 0)}};
}

std::string row_label(const verification::AttentionCase& c, const std::string& threads) {
  const AttentionProblem& p = c.problem;
  return fmt::format("{} {} d{} h{} b{} n{}{}", core::name_of(p.dtype),
                     p.mask == Mask::none              ? "full"
                     : p.mask.left == Mask::kUnlimited ? "causal"
                                                       : "window",
                     p.dim_qk, p.heads_q, p.batch, length_of(c), threads);
}

Json heat_cells(const Configuration& configuration, const std::vector<std::string>& columns) {
  double fastest = 0;
  for (const auto& [name, one] : configuration.by_implementation) {
    if (!one->timed() || one->row.has_flag("impossible")) continue;
    fastest = fastest == 0 ? one->seconds() : std::min(fastest, one->seconds());
  }
  Json cells = Json::array();
  for (const std::string& name : columns) {
    const Cell cell = time_cell(configuration, name);
    const Measured* const one = configuration.find(name);
    const bool shown = one != nullptr && one->timed() && !one->row.has_flag("impossible");
    cells.push_back({{"text", cell.text},
                     {"best", cell.emphasis == Emphasis::best},
                     {"ratio", shown ? Json(one->seconds() / fastest) : Json(nullptr)}});
  }
  return cells;
}

// One heat map of some configurations. Colour is the time over the fastest of the row.
Json heat_map(const Study& study, CasePass pass, const std::vector<const Configuration*>& part, const Part& numbered) {
  std::vector<const Measured*> used;
  std::set<std::string> present;
  std::set<int> threads;
  for (const Configuration* configuration : part) {
    for (const auto& [name, one] : configuration->by_implementation) {
      used.push_back(one);
      present.insert(name);
      threads.insert(threads_of(one->row));
    }
  }
  std::vector<std::string> columns;
  for (const std::string& name : study.implementations) {
    if (present.contains(name)) columns.push_back(name);
  }
  Json one = picture(fmt::format("heat-{}{}", key_of(pass), numbered.in_name()), "heat",
                     "Time in ms, " + word_of(pass) + numbered.in_title(),
                     "Implementation by configuration; colour is the time over the fastest of the row, bold the "
                     "fastest that can be told apart. Marks: " +
                         flags_legend() + ".",
                     conditions_of(used));
  one["columns"] = columns;
  one["rows"] = Json::array();
  for (const Configuration* configuration : part) {
    const int own = threads_of(configuration->by_implementation.begin()->second->row);
    const bool named = threads.size() > 1 && own > 0;
    const std::string label = row_label(configuration->problem, named ? fmt::format(" t{}", own) : "");
    one["rows"].push_back({{"label", label}, {"cells", heat_cells(*configuration, columns)}});
  }
  return one;
}

void add_heat_maps(Json& pictures, const Study& study, const std::vector<Group>& groups) {
  for (const CasePass pass : verification::kCasePasses) {
    std::vector<const Configuration*> all;
    for (const Group& group : groups) {
      if (group.pass != pass) continue;
      for (const Configuration& configuration : group.configurations) all.push_back(&configuration);
    }
    for (std::size_t start = 0; start < all.size(); start += kMostRows) {
      const auto from = all.begin() + static_cast<std::ptrdiff_t>(start);
      const auto to = all.begin() + static_cast<std::ptrdiff_t>(std::min(start + kMostRows, all.size()));
      const Part numbered{start / kMostRows + 1, (all.size() + kMostRows - 1) / kMostRows};
      pictures.push_back(heat_map(study, pass, {from, to}, numbered));
    }
  }
}

// Rate against operations per byte of the definition, under the ceilings measured in the same run.
void add_roofline(Json& pictures, const Study& study) {
  using Key = std::pair<DeviceKind, DType>;  // a panel
  std::map<Key, Json> panels;
  std::map<Key, double> peak;
  std::map<DeviceKind, double> bandwidth;
  std::vector<const Measured*> used;
  for (const Measured& one : study.rows) {
    for (const auto& [name, rate] : one.environment->ceilings) {
      if (name.find("bandwidth") == std::string::npos) continue;
      double& most = bandwidth[name.starts_with("gpu_") ? DeviceKind::cuda : DeviceKind::cpu];
      most = std::max(most, rate);
    }
    if (!one.timed() || one.row.has_flag("impossible") || one.row.bytes <= 0) continue;
    const Key key{one.problem.problem.device.kind, one.problem.problem.dtype};
    if (one.row.ceiling) peak[key] = std::max(peak[key], one.row.ceiling->flops_per_s);
    panels[key].push_back({{"implementation", one.row.impl},
                           {"pass", key_of(one.problem.pass)},
                           {"x", one.row.flops / one.row.bytes},
                           {"y", one.row.flops / one.seconds()},
                           {"clean", one.ranked() && !one.noisy()}});
    used.push_back(&one);
  }
  if (used.empty()) return;
  Json one = picture("roofline", "roofline", "Roofline",
                     "Rate of each cell against the operations per byte that its problem asks, under the ceilings "
                     "measured in the same run.",
                     conditions_of(used));
  one["implementations"] = study.implementations;
  for (auto& [key, points] : panels) {
    const std::string device = key.first == DeviceKind::cpu ? "" : ", " + std::string(core::name_of(key.first));
    one["panels"].push_back({{"title", std::string(core::name_of(key.second)) + device},
                             {"peak", peak[key]},
                             {"bandwidth", bandwidth[key.first]},
                             {"points", std::move(points)}});
  }
  pictures.push_back(std::move(one));
}

}  // namespace

std::string describe_pictures(const Study& study, const std::vector<PublishedPage>& pages) {
  const auto groups = groups_of(study, GroupBy::lengths);
  Json pictures = Json::array();
  add_by_length(pictures, study, groups,
                {"time", "Time against length", "Median time; bars span the quartiles.", seconds_point});
  add_heat_maps(pictures, study, groups);
  add_by_length(pictures, study, groups,
                {"scaling", "Growth with length",
                 "Median time on logarithmic axes; dashed: the fitted power of the length n.", seconds_point, true});
  add_by_length(pictures, study, groups,
                {"speedup", "Speed-up over " + study.baseline,
                 "Above the line faster than " + study.baseline + ", below it slower; no point where it has no time.",
                 [&](const Configuration& configuration, const Measured& one) -> Json {
                   const auto ratio = speed_up(configuration, one.row.impl, study.baseline);
                   return ratio ? Json{{"y", *ratio}} : Json(nullptr);
                 }});
  add_by_length(pictures, study, groups,
                {"memory",
                 "Memory before backward",
                 "Inputs, outputs and saved state between forward and backward.",
                 memory_point,
                 false,
                 {CasePass::bwd}});
  add_by_length(
      pictures, study, groups,
      {"memory", "Memory in use, forward", "Inputs, outputs and scratch.", memory_point, false, {CasePass::fwd}});
  add_roofline(pictures, study);
  for (Json& one : published_pictures(pages, study)) pictures.push_back(std::move(one));
  return Json{{"schema", "fovea.pictures/1"}, {"implementations", study.implementations}, {"pictures", pictures}}.dump(
      1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace fovea::program

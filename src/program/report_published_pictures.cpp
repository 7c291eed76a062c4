// Speed-ups over the eager form (and for D2 memory) against length, here and published. Ratios carry over between
// machines; times do not.
#include "program/report_published_pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/names.h"

namespace fovea::program {
namespace {

using Json = nlohmann::ordered_json;

std::string panel_of(const verification::AttentionCase& c, bool with_dim) {
  const AttentionProblem& p = c.problem;
  std::string title = fmt::format("{}, {}", word_of(c.pass), core::name_of(p.dtype));
  if (with_dim) title += fmt::format(", d={}", p.dim_qk);
  if (p.heads_q > 1) title += fmt::format(", {} heads", p.heads_q);
  return title + fmt::format(", batch {}", p.batch);
}

struct Line {
  std::string implementation;
  std::int64_t dim = 0;
  Json here = Json::array(), published = Json::array();
};

// The eager form of the same problem.
const Match* eager_of(const PublishedPage& page, const Match& match) {
  for (const Match& other : page.matches) {
    if (other.published->implementation == "naive" && other.published->measurement == match.published->measurement) {
      return &other;
    }
  }
  return nullptr;
}

std::string both_conditions(const PublishedPage& page, const std::vector<const Measured*>& used) {
  return "Here: " + conditions_of(used) + ". Published: " + page.report->hardware;
}

Json picture_of(const PublishedPage& page) {
  const bool by_dim = page.report->letter == "E";
  std::vector<std::string> order;
  std::map<std::string, std::map<std::string, Line>> panels;
  std::vector<const Measured*> used;
  for (const Match& match : page.matches) {
    const Match* const eager = eager_of(page, match);
    if (match.published->implementation == "naive" || eager == nullptr) continue;
    const verification::AttentionCase& c = match.published->problem;
    const std::string title = panel_of(c, by_dim);
    if (panels.count(title) == 0) order.push_back(title);
    Line& line = panels[title][fmt::format("{}{:04}", match.published->implementation, c.problem.dim_qk)];
    line.implementation = match.published->implementation;
    line.dim = c.problem.dim_qk;
    const auto x = static_cast<double>(c.problem.len_k);
    const auto usable = [](const Measured* m) { return m->timed() && !m->row.has_flag("impossible"); };
    if (usable(match.here) && usable(eager->here)) {
      line.here.push_back({{"x", x}, {"y", eager->here->row.time_s->mean / match.here->row.time_s->mean}});
      used.push_back(match.here);
    }
    if (match.published->word.empty() && eager->published->word.empty()) {
      line.published.push_back({{"x", x}, {"y", eager->published->mean_s / match.published->mean_s}});
    }
  }
  if (used.empty()) return nullptr;
  Json panel_list = Json::array();
  for (const std::string& title : order) {
    Json series = Json::array();
    for (const auto& [key, line] : panels[title]) {
      series.push_back({{"implementation", line.implementation},
                        {"dim", line.dim},
                        {"here", line.here},
                        {"published", line.published}});
    }
    panel_list.push_back({{"title", title}, {"series", series}});
  }
  return {{"name", "published-" + page.report->letter},
          {"kind", "published"},
          {"title", "Report " + page.report->letter + ": speed-up over the eager form"},
          {"description", "Solid: here, over naive. Dashed: as published, over its eager form."},
          {"conditions", both_conditions(page, used)},
          {"colour_by", by_dim ? "implementation" : "dim"},
          {"panels", panel_list}};
}

// D2 has no speed-ups: its memory before backward against ours, a panel per head dimension.
Json memory_picture_of(const PublishedPage& page, const Study& study) {
  const auto held = [](const Row& row) { return static_cast<double>(row.memory_before_backward_bytes.value_or(0)); };
  std::map<std::int64_t, std::map<std::string, Json>> panels;  // by head dimension and implementation
  std::vector<const Measured*> used;
  for (const PublishedFigure& figure : page.report->figures) {
    const AttentionProblem& p = figure.problem.problem;
    if (figure.problem.pass != verification::CasePass::bwd) continue;
    for (const Measured& one : study.rows) {
      if (measurement_of(one.problem) != figure.measurement || !one.timed() || held(one.row) == 0) continue;
      panels[p.dim_qk][one.row.impl].push_back({{"x", p.len_k}, {"y", held(one.row)}, {"clean", true}});
      used.push_back(&one);
    }
  }
  Json panel_list = Json::array();
  for (auto& [dim, lines] : panels) {
    Json series = Json::array(), printed = Json::array(), words = Json::array();
    for (const std::string& name : study.implementations) {
      if (lines.count(name) != 0) {
        series.push_back({{"implementation", name}, {"points", lines[name]}, {"missing", Json::array()}});
      }
    }
    for (const PublishedFigure& figure : page.report->figures) {
      const AttentionProblem& p = figure.problem.problem;
      if (figure.problem.pass != verification::CasePass::bwd || p.dim_qk != dim) continue;
      if (figure.word.empty()) {
        printed.push_back({{"x", p.len_k}, {"y", figure.memory_before_backward_bytes}, {"clean", true}});
      } else {
        words.push_back({{"x", p.len_k}, {"word", figure.word}});
      }
    }
    series.push_back({{"implementation", "published: torch"}, {"points", printed}, {"missing", words}});
    panel_list.push_back({{"title", fmt::format("fp32, no mask, d={}, 1 head, batch 8", dim)}, {"series", series}});
  }
  if (used.empty()) return nullptr;
  return {{"name", "published-D2"},
          {"kind", "memory"},
          {"title", "Report D2: memory before backward"},
          {"description", "Here inputs, outputs and saved state; published: what the framework held."},
          {"conditions", both_conditions(page, used)},
          {"panels", panel_list}};
}

}  // namespace

std::vector<Json> published_pictures(const std::vector<PublishedPage>& pages, const Study& study) {
  std::vector<Json> pictures;
  for (const PublishedPage& page : pages) {
    Json one = page.report->letter == "D2" ? memory_picture_of(page, study) : picture_of(page);
    if (!one.is_null()) pictures.push_back(std::move(one));
  }
  return pictures;
}

}  // namespace fovea::program

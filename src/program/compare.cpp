// fovea compare: compares two files of records and prints verdicts, for people, scripts and CI.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/printable.h"
#include "program/bench/short_lines.h"
#include "program/bench/table.h"
#include "program/record/compare_records.h"
#include "program/terminal_text.h"
#include "program/verbs.h"

namespace fovea::program {
namespace {

using Json = nlohmann::ordered_json;

struct CompareOptions {
  std::string a, b, fail_on;
  std::vector<std::string> again;
  bool force = false, json = false;
};

std::string sources_of(const Records& records) {
  std::set<std::string> sources;
  for (const Environment& e : records.environments)
    sources.insert(e.source.commit.substr(0, 12) + (e.source.dirty ? " with changes" : ""));
  std::string text;
  for (const auto& source : sources) text += (text.empty() ? "" : ", ") + source;
  return core::printable(text);
}

Json json_of(const Row& row) { return {{"problem", row.problem}, {"impl", row.impl}, {"threads", row.threads}}; }

Json json_of(const TimeStatistics& t) { return {{"median", t.median}, {"q1", t.q1}, {"q3", t.q3}, {"n", t.n}}; }

Json json_of(const Comparison& comparison) {
  Json cells = Json::array(), changes = Json::array(), only_a = Json::array(), only_b = Json::array();
  for (const ComparedCell& cell : comparison.cells) {
    Json json = json_of(*cell.a);
    json["a"] = json_of(*cell.a->time_s);
    json["b"] = json_of(*cell.b->time_s);
    json["ratio"] = cell.judgement.ratio;
    json["verdict"] = to_string(cell.judgement.verdict);
    json["reason"] = cell.judgement.reason;
    cells.push_back(std::move(json));
  }
  for (const auto& [before, after] : comparison.status_changes) {
    Json json = json_of(*before);
    json["a"] = before->status;
    json["b"] = after->status;
    json["reason"] = after->status == "ok" ? before->reason : after->reason;
    changes.push_back(std::move(json));
  }
  for (const Row* row : comparison.only_a) only_a.push_back(json_of(*row));
  for (const Row* row : comparison.only_b) only_b.push_back(json_of(*row));
  Json means = Json::array();
  for (const auto& [name, mean] : geometric_means(comparison))
    means.push_back(
        {{"impl", name.empty() ? Json(nullptr) : Json(name)}, {"ratio", mean.ratio}, {"cells", mean.cells}});
  return {{"cells", cells},   {"geometric_means", means}, {"status_changes", changes},
          {"only_a", only_a}, {"only_b", only_b},         {"notes", comparison.notes}};
}

void print_json(const CompareOptions& o, const std::vector<std::string>& differences, const Comparison& comparison) {
  Json json{{"schema", "fovea.compare/1"}, {"a", o.a}, {"b", o.b}, {"differences", differences}};
  json.update(json_of(comparison));
  std::printf("%s\n", json.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
}

std::string coloured(Verdict verdict, bool colour) {
  const std::string word(to_string(verdict));
  if (!colour || verdict == Verdict::same) return word;
  const char* const code = verdict == Verdict::faster ? "32" : verdict == Verdict::slower ? "31" : "33";
  return fmt::format("\033[{}m{}\033[0m", code, word);
}

// The problem, and what else tells the row from others: threads, and how a GPU was timed.
std::string label_of(const Row& row, const Comparison& comparison) {
  const auto differs = [&](const auto& holds) {
    return !std::all_of(comparison.cells.begin(), comparison.cells.end(), holds);
  };
  std::string label = row.problem;
  if (differs([&](const ComparedCell& one) { return one.a->threads == row.threads; }))
    label += fmt::format(" threads={}", row.threads);
  if (differs([&](const ComparedCell& one) { return one.a->timer == row.timer; }))
    label += fmt::format(" timer={}", row.timer);
  return label;
}

// A table per implementation. The reason of an unclear verdict follows on a line of its own.
void print_cells(const Comparison& comparison) {
  const bool colour = colour_wanted(fileno(stdout));
  std::vector<std::string> problems, implementations;
  for (const ComparedCell& cell : comparison.cells) {
    problems.push_back(label_of(*cell.a, comparison));
    if (std::find(implementations.begin(), implementations.end(), cell.a->impl) == implementations.end())
      implementations.push_back(cell.a->impl);
  }
  const ShortLines labels = shorten(problems);
  if (!labels.common.empty()) std::printf("%s\n", wrapped("all: " + labels.common, 5).c_str());
  for (const std::string& implementation : implementations) {
    std::vector<std::vector<std::string>> table{labels.keys};
    for (const char* head : {"A", "B", "B/A", "verdict"}) table[0].emplace_back(head);
    std::vector<std::string> reasons{""};
    for (std::size_t i = 0; i < comparison.cells.size(); ++i) {
      const ComparedCell& cell = comparison.cells[i];
      if (cell.a->impl != implementation) continue;
      std::vector<std::string>& line = table.emplace_back(labels.values[i]);
      for (const std::string& word :
           {time_text(cell.a->time_s->median), time_text(cell.b->time_s->median),
            fmt::format("{:.3f}", cell.judgement.ratio), coloured(cell.judgement.verdict, colour)})
        line.push_back(word);
      reasons.push_back(cell.judgement.verdict == Verdict::unclear ? cell.judgement.reason : "");
    }
    std::printf("\n%s\n", core::printable(implementation).c_str());
    std::istringstream lines(aligned(table));
    std::size_t row = 0;
    for (std::string line; std::getline(lines, line); ++row) {
      std::printf("%s\n", line.c_str());
      if (!reasons[row].empty()) std::printf("%s\n", wrapped("    " + reasons[row], 4).c_str());
    }
  }
  std::printf("\n");
}

void print_means(const Comparison& comparison) {
  std::vector<std::vector<std::string>> table;
  const auto means = geometric_means(comparison);
  const auto add = [&table](const std::string& name, const GeometricMean& mean) {
    const double faster = std::max(mean.ratio, 1 / mean.ratio);
    const auto meaning = faster < 1.0005 ? std::string("equally fast")
                                         : fmt::format("{} is {:.3f}× as fast", mean.ratio <= 1 ? "B" : "A", faster);
    table.push_back({"  " + core::printable(name), fmt::format("{:.3f}", mean.ratio),
                     fmt::format("{} cell{}", mean.cells, mean.cells == 1 ? "" : "s"), meaning});
  };
  for (const auto& [name, mean] : means) {
    if (!name.empty()) add(name, mean);
  }
  if (means.size() > 2) add("all", means.at(""));
  if (!table.empty()) std::printf("geometric mean of B/A, without unclear cells\n%s\n", aligned(table).c_str());
}

void print_list(const char* title, const std::vector<const Row*>& rows) {
  if (!rows.empty()) std::printf("%s\n", title);
  for (const Row* row : rows) std::printf("  %s\n", core::printable(key_of(*row)).c_str());
  if (!rows.empty()) std::printf("\n");
}

void print_text(const CompareOptions& o, const Records& a, const Records& b, const Comparison& comparison) {
  std::printf("A: %s, %zu rows, commit %s\nB: %s, %zu rows, commit %s\n\n", o.a.c_str(), a.rows.size(),
              sources_of(a).c_str(), o.b.c_str(), b.rows.size(), sources_of(b).c_str());
  if (!comparison.cells.empty()) print_cells(comparison);
  print_means(comparison);
  if (!comparison.status_changes.empty()) std::printf("another status\n");
  for (const auto& [before, after] : comparison.status_changes) {
    const std::string& reason = after->status == "ok" ? before->reason : after->reason;
    std::printf("  %s: %s -> %s%s%s\n", core::printable(key_of(*before)).c_str(), before->status.c_str(),
                after->status.c_str(), reason.empty() ? "" : ": ", core::printable(reason).c_str());
  }
  if (!comparison.status_changes.empty()) std::printf("\n");
  print_list("only in A", comparison.only_a);
  print_list("only in B", comparison.only_b);
  for (const auto& note : comparison.notes) std::printf("note: %s\n", note.c_str());
  std::printf("%ld same, %ld faster, %ld slower, %ld unclear\n", comparison.count(Verdict::same),
              comparison.count(Verdict::faster), comparison.count(Verdict::slower), comparison.count(Verdict::unclear));
}

Records load_with_warning(const std::string& path) {
  Records records = load_records(path);
  if (!records.warning.empty()) std::fprintf(stderr, "fovea: %s\n", records.warning.c_str());
  return records;
}

int run_compare(const CompareOptions& o) {
  const Records a = load_with_warning(o.a), b = load_with_warning(o.b);
  std::vector<Records> again;
  for (const std::string& path : o.again) again.push_back(load_with_warning(path));
  const std::vector<std::string> differences = condition_differences(a, b);
  if (!differences.empty()) {
    std::fprintf(stderr, "fovea: the two files were not measured under the same conditions\n");
    for (const auto& difference : differences) std::fprintf(stderr, "  %s\n", core::printable(difference).c_str());
    if (!o.force) std::fprintf(stderr, "  hint: --force compares them anyway\n");
    if (!o.force) return 2;
  }
  const Comparison comparison = compare_records(a, b, o.force, again);
  if (comparison.cells.empty() && comparison.status_changes.empty()) {
    std::fprintf(stderr, "fovea: %s and %s share no cell that can be compared\n", o.a.c_str(), o.b.c_str());
    return 2;
  }
  if (o.json) {
    print_json(o, differences, comparison);
  } else {
    print_text(o, a, b, comparison);
  }
  return o.fail_on == "slower" && comparison.any_slower() ? 1 : 0;
}

}  // namespace

void add_compare(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("compare", "Compare two files of records, cell by cell");
  static CompareOptions o;
  verb->add_option("a", o.a, "records of `fovea bench -o`: before")->required()->type_name("FILE");
  verb->add_option("b", o.b, "records of `fovea bench -o`: after")->required()->type_name("FILE");
  verb->add_option("--fail-on", o.fail_on, "slower: exit 1 if a cell is slower in b, or has a\ntime in a only")
      ->check(CLI::IsMember({"slower"}));
  verb->add_option("--again", o.again, "more runs of a's build: they show how far runs of\none build are apart")
      ->type_name("FILE");
  verb->add_flag("--force", o.force, "compare files of different machines, threads or\nbuilds");
  verb->add_flag("--json", o.json, "print one JSON object instead of tables");
  verb->footer(
      "A verdict needs three samples on both sides. Faster or slower: the quartile\n"
      "intervals do not touch, and the medians are further apart than either interval\n"
      "is wide, and than runs of one build (--again); the turns' medians do not\n"
      "overlap. Two runs of one build are never faster or slower. Same: the medians\n"
      "differ by less than 0.5 %, or each lies within the other interval; and both\n"
      "spreads are below 10 %. Otherwise unclear. A spread is the width of a quartile\n"
      "interval divided by its median.\n"
      "Exit codes: 0 compared, 1 slower and --fail-on given, 2 cannot be compared.");
  verb->callback([&action] { action = [] { return run_compare(o); }; });
}

}  // namespace fovea::program

// fovea explain: the walk through the list of implementations for one problem, and what the chosen one would do.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "attention/implementation.h"
#include "core/check.h"
#include "core/problem_line.h"
#include "fovea/attention.h"
#include "fovea/threads.h"
#include "program/bench/contender.h"
#include "program/bench/table.h"
#include "program/command_line.h"
#include "program/machine/machine.h"
#include "program/verbs.h"
#include "verification/attention/case.h"
#include "verification/problem_line.h"

namespace fovea::program {
namespace {

struct Facts {
  verification::AttentionCase c;
  Explanation explanation;
  double floor_s = 0;        // no kernel of this machine is faster
  std::int64_t tensors = 0;  // bytes of inputs and outputs
};

void check_name(const std::string& implementation) {
  const std::vector<std::string> known = attention::known_names();
  if (implementation.empty() || std::find(known.begin(), known.end(), implementation) != known.end()) return;
  const std::string near = core::nearest_word(implementation, known);
  core::fail({.status = Status::invalid_argument,
              .call = "explain",
              .argument = "--impl",
              .problem = "no implementation of this name",
              .got = implementation,
              .wanted = fmt::format("one of {}", fmt::join(known, ", ")),
              .hint = near.empty() ? "" : "did you mean `" + near + "`?"});
}

// As `bench` poses it: reproducible where that is promised, and backward from the state that its forward keeps.
Explanation explanation_of(const verification::AttentionCase& c, const std::string& implementation) {
  AttentionProblem problem = c.problem;
  problem.reproducible = attention::promises_reproducibility(implementation);
  problem.pass = Pass::forward;
  Explanation forward = explain(problem, implementation);
  if (c.pass == verification::CasePass::fwd) return forward;
  problem.saved_state = forward.saved_bytes > 0;
  if (problem.saved_state) forward = explain(problem, implementation);
  problem.pass = Pass::backward;
  Explanation backward = explain(problem, implementation);
  backward.saved_bytes = forward.saved_bytes;
  if (c.pass == verification::CasePass::bwd) return backward;
  forward.workspace_bytes = std::max(forward.workspace_bytes, backward.workspace_bytes);
  forward.flops = flops_of(c);
  forward.bytes = bytes_of(c);
  return forward;
}

Facts facts_of(const std::string& line, const std::string& implementation) {
  Facts facts;
  facts.c = verification::attention_case(line);
  check_name(implementation);
  facts.explanation = explanation_of(facts.c, implementation);
  const double peak = datasheet_flops(this_machine(), default_threads(), facts.c.problem.dtype != DType::fp32);
  if (peak > 0) facts.floor_s = facts.explanation.flops / peak;
  facts.tensors = tensor_bytes(facts.c);
  return facts;
}

std::string predicted(double seconds) { return seconds > 0 ? ", predicted " + time_text(seconds) : ""; }

bool is_taken(const Explanation& e, const Explanation::Step& step) { return step.accepted && step.name == e.chosen; }

void print_json(const Facts& facts) {
  const Explanation& e = facts.explanation;
  nlohmann::ordered_json walk = nlohmann::ordered_json::array();
  for (const auto& step : e.walk)
    walk.push_back({{"name", step.name},
                    {"accepts", step.accepted},
                    {"taken", is_taken(e, step)},
                    {"reason", step.reason},
                    {"predicted_s", step.predicted_seconds}});
  const nlohmann::ordered_json all{{"schema", "fovea.explain/1"},
                                   {"problem", verification::line_of(facts.c)},
                                   {"walk", walk},
                                   {"chosen", e.chosen},
                                   {"tiles", e.tiles},
                                   {"workspace_bytes", e.workspace_bytes},
                                   {"saved_bytes", e.saved_bytes},
                                   {"tensor_bytes", facts.tensors},
                                   {"flops", e.flops},
                                   {"bytes", e.bytes},
                                   {"floor_s", facts.floor_s},
                                   {"predicted_s", e.predicted_seconds}};
  std::printf("%s\n", all.dump(2).c_str());
}

void print_words(const Facts& facts) {
  const Explanation& e = facts.explanation;
  std::vector<std::vector<std::string>> rows;
  for (const auto& step : e.walk)
    rows.push_back({"  " + step.name, (is_taken(e, step) ? "takes it"
                                       : step.accepted   ? "would take it"
                                                         : "refuses: " + step.reason) +
                                          predicted(step.predicted_seconds)});
  std::printf("%s\n%s", verification::line_of(facts.c).c_str(), aligned(rows).c_str());
  if (e.chosen.empty()) {
    std::printf("no implementation takes this problem\n");
    return;
  }
  const std::vector<std::vector<std::string>> plan{
      {"runs", e.chosen},
      {"tiles", e.tiles},
      {"workspace", fmt::format("{} bytes ({})", e.workspace_bytes, binary_size(e.workspace_bytes))},
      {"saved for backward", fmt::format("{} bytes ({})", e.saved_bytes, binary_size(e.saved_bytes))},
      {"tensors", fmt::format("{} bytes ({})", facts.tensors, binary_size(facts.tensors))},
      {"operations", fmt::format("{:.4g} flops of visible pairs", e.flops)},
      {"traffic", fmt::format("{:.4g} bytes if every tensor is moved once ({:.1f} flops/byte)", e.bytes,
                              e.bytes > 0 ? e.flops / e.bytes : 0)},
      {"floor",
       facts.floor_s > 0 ? time_text(facts.floor_s) + " at the highest rate this processor could have" : "unknown"}};
  std::fputs(aligned(plan).c_str(), stdout);
}

}  // namespace

void add_explain(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("explain", "Which implementation takes a problem, why, and what it needs");
  static std::string line, implementation;
  static bool json = false;
  verb->add_option("--problem", line, "the problem line")->required()->check(not_empty())->type_name("LINE");
  verb->add_option("--impl", implementation, "explain this one instead of the first that accepts")
      ->check(not_empty())
      ->type_name("NAME");
  verb->footer(verification::problem_line_help());
  verb->add_flag("--json", json, "print JSON");
  verb->callback([&action] {
    action = [] {
      const Facts facts = facts_of(line, implementation);
      json ? print_json(facts) : print_words(facts);
      return facts.explanation.chosen.empty() ? 1 : 0;
    };
  });
}

}  // namespace fovea::program

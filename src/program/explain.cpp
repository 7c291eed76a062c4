// fovea explain: prints the verdicts of all implementations on one problem, and the plan of the chosen one.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/binary_size.h"
#include "core/check.h"
#include "core/choose.h"
#include "core/problem_line.h"
#include "cuda/measure/device_facts.h"
#include "fovea/threads.h"
#include "program/bench/contender.h"
#include "program/bench/table.h"
#include "program/command_line.h"
#include "program/flash.h"
#include "program/machine/device.h"
#include "program/machine/machine.h"
#include "program/terminal_text.h"
#include "program/verbs.h"
#include "verification/problem_line.h"

namespace fovea::program {
namespace {

// No kernel takes less time on this machine.
struct LowerBound {
  double seconds = 0;  // 0: not known
  std::string text;    // the bound, or why it is not known
};

struct Facts {
  verification::Case c;
  verification::CasePlan plan;
  verification::Cost cost;
  LowerBound bound;
  std::int64_t tensors = 0;  // bytes of inputs and outputs
};

void check_name(const std::string& implementation, const verification::Operation& operation) {
  const std::vector<std::string> known = known_names({&operation});
  if (implementation.empty() || std::find(known.begin(), known.end(), implementation) != known.end()) return;
  const std::string near = core::nearest_word(implementation, known);
  core::fail({.status = Status::invalid_argument,
              .argument = "--impl",
              .problem = "no implementation of this name",
              .got = implementation,
              .wanted = fmt::format("one of {}", fmt::join(known, ", ")),
              .hint = near.empty() ? "" : "did you mean `" + near + "`?"});
}

LowerBound bound_of(double flops, double peak, const std::string& whose) {
  const double seconds = flops / peak;
  return {seconds, time_text(seconds) + " for the arithmetic alone, at the peak rate of " + whose};
}

LowerBound lower_bound_of(const verification::Case& c, double flops) {
  if (c.device() == DeviceKind::cpu) {
    const int threads = default_threads();
    const double peak = datasheet_flops(this_machine(), threads, c.dtype() != DType::fp32);
    if (peak <= 0) return {0, "unknown: the clock of this processor could not be measured"};
    return bound_of(flops, peak, fmt::format("{} thread{}", threads, threads == 1 ? "" : "s"));
  }
  const auto gpus = cuda::device_facts();
  if (gpus.empty()) return {0, "unknown: this machine has no GPU, or this build has no CUDA"};
  const double peak = cuda::datasheet_flops(gpus.front(), c.dtype());
  if (peak <= 0) return {0, "unknown: fovea knows no peak rate of " + gpus.front().name};
  return bound_of(flops, peak, gpus.front().name);
}

Facts facts_of(const std::string& line, const std::string& implementation) {
  Facts facts{.c = verification::parse_case(line), .plan = {}, .cost = {}, .bound = {}};
  check_name(implementation, *facts.c.operation);
  facts.plan = facts.c.operation->plan(facts.c, asked_of_library(implementation));
  // The saved state is printed for every pass.
  const verification::Case both = facts.c.with("pass", "e2e");
  const verification::CasePlan with_both = facts.c.operation->plan(both, facts.plan.implementation);
  facts.plan.saved_bytes = with_both.saved_bytes;
  facts.plan.saved = with_both.saved;
  facts.cost = facts.c.operation->cost(facts.c);
  facts.bound = lower_bound_of(facts.c, facts.cost.flops);
  facts.tensors = tensor_bytes(facts.c);
  return facts;
}

std::string predicted(double seconds) { return seconds > 0 ? ", predicted " + time_text(seconds) : ""; }

bool is_taken(const verification::CasePlan& plan, const verification::CasePlan::Step& step) {
  return step.accepts && step.name == plan.implementation;
}

// Of both passes, if the problem has both.
std::string tiles_of(const verification::CasePlan& plan) {
  if (plan.forward_tiles.empty() || plan.backward_tiles.empty()) return plan.forward_tiles + plan.backward_tiles;
  return "forward: " + plan.forward_tiles + "; backward: " + plan.backward_tiles;
}

std::vector<std::vector<std::string>> tile_rows(const verification::CasePlan& plan) {
  if (tiles_of(plan).empty()) return {};
  if (plan.forward_tiles.empty() || plan.backward_tiles.empty()) return {{"tiles", tiles_of(plan)}};
  return {{"tiles, forward", plan.forward_tiles}, {"tiles, backward", plan.backward_tiles}};
}

std::string answer_of(const verification::CasePlan& plan, const verification::CasePlan::Step& step) {
  if (is_taken(plan, step)) return "takes it";
  if (step.accepts) return "would take it";
  const bool by_choice = step.reason.starts_with(core::kOnlyWhenNamed);
  return by_choice ? step.reason : "refuses: " + step.reason;
}

// "847 KiB (867584 bytes)"
std::string bytes_text(std::int64_t bytes) {
  return bytes < 1024 ? fmt::format("{} bytes", bytes) : fmt::format("{} ({} bytes)", core::binary_size(bytes), bytes);
}

nlohmann::ordered_json json_of(const std::vector<verification::CasePlan::Array>& arrays) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& one : arrays) list.push_back({{"name", one.name}, {"bytes", one.bytes}});
  return list;
}

// What the implementation takes for itself, or what the caller gives it, with the arrays inside.
std::vector<std::vector<std::string>> memory_rows(const verification::CasePlan& plan) {
  std::vector<std::vector<std::string>> rows;
  const auto add_arrays = [&rows](const std::vector<verification::CasePlan::Array>& arrays) {
    for (const auto& one : arrays) rows.push_back({"  " + one.name, bytes_text(one.bytes)});
  };
  if (plan.own_memory.empty()) {
    rows.push_back({"workspace", bytes_text(plan.workspace_bytes)});
    rows.push_back({"saved for backward", bytes_text(plan.saved_bytes)});
    add_arrays(plan.saved);
    return rows;
  }
  std::int64_t total = 0;
  for (const auto& one : plan.own_memory) total += one.bytes;
  rows.push_back({"memory of its own", bytes_text(total)});
  add_arrays(plan.own_memory);
  return rows;
}

void print_json(const Facts& facts) {
  const verification::CasePlan& e = facts.plan;
  nlohmann::ordered_json walk = nlohmann::ordered_json::array();
  for (const auto& step : e.walk)
    walk.push_back({{"name", step.name},
                    {"accepts", step.accepts},
                    {"taken", is_taken(e, step)},
                    {"reason", step.reason},
                    {"predicted_s", step.seconds}});
  const nlohmann::ordered_json all{{"schema", "fovea.explain/1"},
                                   {"problem", verification::line_of(facts.c)},
                                   {"walk", walk},
                                   {"chosen", e.implementation},
                                   {"tiles", tiles_of(e)},
                                   {"forward_tiles", e.forward_tiles},
                                   {"backward_tiles", e.backward_tiles},
                                   {"workspace_bytes", e.workspace_bytes},
                                   {"saved_bytes", e.saved_bytes},
                                   {"saved", json_of(e.saved)},
                                   {"own_memory", json_of(e.own_memory)},
                                   {"tensor_bytes", facts.tensors},
                                   {"flops", facts.cost.flops},
                                   {"bytes", facts.cost.bytes},
                                   {"floor_s", facts.bound.seconds},
                                   {"predicted_s", e.seconds}};
  std::printf("%s\n", all.dump(2).c_str());
}

void print_words(const Facts& facts) {
  const verification::CasePlan& e = facts.plan;
  std::vector<std::vector<std::string>> rows;
  for (const auto& step : e.walk) rows.push_back({"  " + step.name, answer_of(e, step) + predicted(step.seconds)});
  std::printf("%s\n%s", wrapped(verification::line_of(facts.c), 2).c_str(), aligned(rows).c_str());
  if (e.implementation.empty()) {
    std::printf("no implementation takes this problem\n");
    std::fputs(missing_device(*facts.c.operation, facts.c.device(), "explain", "device=cpu").c_str(), stdout);
    return;
  }
  std::vector<std::vector<std::string>> plan{{"runs", e.implementation}};
  for (auto& row : tile_rows(e)) plan.push_back(std::move(row));
  for (auto& row : memory_rows(e)) plan.push_back(std::move(row));
  const std::vector<std::vector<std::string>> sizes{
      {"inputs, outputs", bytes_text(facts.tensors)},
      {"operations", fmt::format("{:.4g} flops", facts.cost.flops)},
      {"traffic", fmt::format("{} if each tensor is read or written once ({:.1f} flops per byte)",
                              core::binary_size(static_cast<std::int64_t>(facts.cost.bytes)),
                              facts.cost.bytes > 0 ? facts.cost.flops / facts.cost.bytes : 0)},
      {"lower bound", facts.bound.text}};
  plan.insert(plan.end(), sizes.begin(), sizes.end());
  std::fputs(aligned(plan).c_str(), stdout);
}

}  // namespace

void add_explain(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("explain", "Show which implementation runs a problem, and why");
  static std::string line, implementation;
  static bool json = false;
  verb->add_option("--problem", line, "problem line, as below")->required()->check(not_empty())->type_name("LINE");
  verb->add_option("--impl", implementation, "explain this implementation, not the chosen one")
      ->check(not_empty())
      ->type_name("NAME");
  verb->footer(verification::problem_line_help());
  verb->add_flag("--json", json, "print JSON");
  verb->callback([&action] {
    action = [] {
      const Facts facts = facts_of(line, implementation);
      json ? print_json(facts) : print_words(facts);
      return facts.plan.implementation.empty() ? 1 : 0;
    };
  });
}

}  // namespace fovea::program

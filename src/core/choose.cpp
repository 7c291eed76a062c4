// The walk through the list of implementations.
#include "core/choose.h"

#include <algorithm>
#include <cstdlib>

#include "attention/problem_line.h"
#include "core/check.h"
#include "core/environment.h"
#include "core/names.h"

namespace fovea::core {
namespace {

std::string refusal_of(const Implementation& one, const AttentionProblem& problem) {
  if (one.device != problem.device.kind)
    return "runs on " + std::string(name_of(one.device)) + ", the tensors are on " +
           std::string(name_of(problem.device.kind));
  if (std::string reason = one.unavailable(); !reason.empty()) return reason;
  if (problem.reproducible && !one.reproducible)
    return "promises no bitwise equality from run to run; takes reproducible=false only";
  return one.refusal(problem);
}

// An implementation may exist under one name on several devices; the tensors' decides.
bool has_twin(const Implementation& one, DeviceKind device) {
  const auto all = all_implementations();
  return one.device != device && std::any_of(all.begin(), all.end(), [&](const auto& other) {
           return other.name == one.name && other.device == device;
         });
}

std::string_view requested(std::string_view name) {
  if (!name.empty()) return name == "flash" ? std::string_view{} : name;
  const std::string_view variable = environment("FOVEA_IMPL");
  return variable == "flash" ? std::string_view{} : variable;
}

// Whether the walk passes it: the one that is named, or else those of the tensors' device and any that would be asked.
bool is_candidate(const Implementation& one, const AttentionProblem& problem, std::string_view wanted) {
  const bool is_meant = wanted.empty() ? one.automatic || one.device == problem.device.kind : one.name == wanted;
  return is_meant && !has_twin(one, problem.device.kind);
}

// Why the walk goes on to the next; empty if it ends here.
std::string verdict(const Implementation& one, const AttentionProblem& problem, std::string_view wanted) {
  std::string reason = refusal_of(one, problem);
  if (!reason.empty() || one.automatic || !wanted.empty()) return reason;
  return "runs only when named" + (one.named_because.empty() ? "" : ": " + one.named_because);
}

}  // namespace

std::vector<std::string> known_names() {
  std::vector<std::string> names{"flash"};
  for (const auto& one : all_implementations()) {
    if (std::find(names.begin(), names.end(), one.name) == names.end()) names.emplace_back(one.name);
  }
  return names;
}

void check_name(std::string_view name, const AttentionProblem& problem, std::string_view call) {
  const std::string_view wanted = requested(name);
  const auto all = all_implementations();
  if (wanted.empty() || std::any_of(all.begin(), all.end(), [wanted](const auto& one) { return one.name == wanted; }))
    return;
  const std::vector<std::string> known = known_names();
  std::string list;
  for (const auto& word : known) list += (list.empty() ? "" : ", ") + word;
  const std::string near = nearest_word(wanted, known);
  const bool told = !name.empty();  // by the call, not the environment
  fail({.status = Status::invalid_argument,
        .call = std::string(call),
        .argument = told ? "implementation" : "FOVEA_IMPL",
        .problem = told ? "no implementation of this name" : "no implementation of the name in the environment",
        .got = std::string(wanted),
        .wanted = "one of " + list,
        .hint = !near.empty() ? "did you mean `" + near + "`?"
                : told        ? "leave it out for the best that takes the problem"
                              : "unset it for the best that takes the problem",
        .line = line_of(problem)});
}

std::vector<Explanation::Step> walk(const AttentionProblem& problem, std::string_view name,
                                    const Implementation** chosen) {
  const std::string_view wanted = requested(name);
  std::vector<Explanation::Step> steps;
  *chosen = nullptr;
  for (const auto& one : all_implementations()) {
    if (!is_candidate(one, problem, wanted)) continue;
    std::string reason = verdict(one, problem, wanted);
    steps.push_back({std::string(one.name), reason.empty(), std::move(reason)});
    if (*chosen == nullptr && steps.back().accepted) *chosen = &one;
  }
  return steps;
}

bool promises_reproducibility(std::string_view name) {
  const std::string_view wanted = requested(name);
  const auto all = all_implementations();
  return std::all_of(all.begin(), all.end(),
                     [wanted](const auto& one) { return one.name != wanted || one.reproducible; });
}

const Implementation& choose(const AttentionProblem& problem, std::string_view name, std::string_view call) {
  const std::string_view wanted = requested(name);
  for (const auto& one : all_implementations()) {
    if (is_candidate(one, problem, wanted) && verdict(one, problem, wanted).empty()) return one;
  }
  check_name(name, problem, call);
  const Implementation* none = nullptr;
  std::string refusals;
  for (const auto& step : walk(problem, name, &none))
    refusals += (refusals.empty() ? "" : "\n          ") + step.name + ": " + step.reason;
  fail({.status = Status::unsupported,
        .call = std::string(call),
        .problem = "no implementation takes this problem",
        .got = refusals,
        .wanted = "a problem that one of them takes",
        .hint = "`fovea info --matrix` lists what each takes",
        .line = line_of(problem)});
}

void refuse_buffer(const AttentionProblem& problem, std::string_view call, std::string_view argument, std::int64_t got,
                   std::int64_t wanted) {
  fail({.status = Status::invalid_argument,
        .call = std::string(call),
        .argument = std::string(argument),
        .problem = "the buffer is too small",
        .got = std::to_string(got) + " bytes",
        .wanted = "at least " + std::to_string(wanted) + " bytes",
        .hint = argument == "workspace" ? "workspace_bytes(describe(..)) tells how many; {} for the library's own"
                                        : "explain(describe(..)).saved_bytes tells how many",
        .line = line_of(problem)});
}

}  // namespace fovea::core

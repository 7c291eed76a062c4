// The list for Linear, and the choice from it.
#include <algorithm>

#include "core/check.h"
#include "core/names.h"
#include "core/never_destroyed.h"
#include "core/problem_line.h"
#include "linear/cuda/linear.h"
#include "linear/host_run.h"
#include "linear/implementation.h"

namespace fovea::linear {
namespace {

Implementation on_host(const HostLibrary& library) {
  return {.name = std::string(library.name),
          .device = DeviceKind::cpu,
          .named_because = std::string(library.named_because),
          .unavailable = [] { return std::string(); },
          .refusal = [library](const LinearProblem& p) { return library.refusal(p.dtype); },
          .workspace_bytes = [library](const LinearProblem& p) { return host_workspace_bytes(library, p); },
          .tiles = [library](const LinearProblem& p) { return host_tiles(library, p); },
          .run = [library](const LinearProblem& p, const Steps& steps,
                           const core::RunContext& context) { run_on_host(library, p, steps, context); }};
}

// Why the walk goes on to the next; empty if it ends here.
std::string verdict(const Implementation& one, const LinearProblem& p, std::string_view name) {
  if (one.device != p.device.kind)
    return "runs on " + std::string(core::name_of(one.device)) + ", the tensors are on " +
           std::string(core::name_of(p.device.kind));
  if (std::string reason = one.unavailable(); !reason.empty()) return reason;
  if (std::string reason = one.refusal(p); !reason.empty()) return reason;
  return one.named_because.empty() || !name.empty() ? "" : "runs only when named: " + one.named_because;
}

}  // namespace

const std::vector<Implementation>& all_implementations() {
  static const auto& all = core::never_destroyed<std::vector<Implementation>>([] {
    std::vector<Implementation> list = cuda_implementations();
    for (const HostLibrary& library : host_libraries()) list.push_back(on_host(library));
    return list;
  }());
  return all;
}

void check_name(std::string_view name, std::string_view call) {
  std::vector<std::string> known;
  for (const Implementation& one : all_implementations()) known.push_back(one.name);
  if (name.empty() || std::find(known.begin(), known.end(), name) != known.end()) return;
  std::string list;
  for (const std::string& word : known) list += (list.empty() ? "" : ", ") + word;
  const std::string near = core::nearest_word(name, known);
  core::fail(
      {.status = Status::invalid_argument,
       .call = std::string(call),
       .argument = "implementation",
       .problem = "no implementation of this name",
       .got = std::string(name),
       .wanted = "one of " + list,
       .hint = near.empty() ? "leave it out for the best that takes the problem" : "did you mean `" + near + "`?"});
}

std::vector<Explanation::Step> walk(const LinearProblem& problem, std::string_view name) {
  std::vector<Explanation::Step> steps;
  for (const Implementation& one : all_implementations()) {
    if (!name.empty() && one.name != name) continue;
    std::string reason = verdict(one, problem, name);
    steps.push_back({one.name, reason.empty(), std::move(reason)});
  }
  return steps;
}

const Implementation& choose(const LinearProblem& problem, std::string_view name, std::string_view call) {
  check_name(name, call);
  for (const Implementation& one : all_implementations())
    if ((name.empty() || one.name == name) && verdict(one, problem, name).empty()) return one;
  std::string refusals;
  for (const auto& step : walk(problem, name))
    refusals += (refusals.empty() ? "" : "\n          ") + step.name + ": " + step.reason;
  core::fail({.status = Status::unsupported,
              .call = std::string(call),
              .problem = "no implementation takes this problem",
              .got = refusals,
              .wanted = "a problem that one of them takes"});
}

}  // namespace fovea::linear

// For the public calls of every operation: the caller's plan or a choice, then its workspace; or the choice explained.
#pragma once

#include <string_view>

#include "core/choose.h"
#include "core/memory.h"

namespace fovea::core {

// Throws Error(invalid_argument) if a buffer was given and is smaller than the plan needs.
void check_buffer(const Plan& plan, std::string_view argument, const Buffer& buffer, std::int64_t wanted,
                  std::string_view hint);

// Says what the caller's plan was not made for: this call, this device, the `unmet` implementation (empty: it fits) or
// this problem.
[[noreturn]] void refuse_plan(const fovea::Plan& given, std::string_view call, const Device& device,
                              std::string_view unmet, const std::string& line);

// The plan that `prepare` returns.
template <class Types>
fovea::Plan prepared(const typename Types::Problem& problem, std::string_view implementation) {
  const auto choice = Chooser<Types>(problem, implementation).choose("prepare");
  return {choice->implementation->name, choice, *choice->plan};
}

// What the call runs: the plan that it was given, or else the choice for its problem. Throws Error(invalid_argument) if
// the plan is another problem's.
template <class Types, class Options>
std::shared_ptr<const Choice<Types>> choice_of(const typename Types::Problem& problem, const Options& options,
                                               std::string_view call) {
  if (options.plan == nullptr) return Chooser<Types>(problem, options.implementation).choose(call);
  const fovea::Plan& given = *options.plan;
  std::string_view unmet = options.implementation;
  if (given.held() != nullptr && given.held()->call == call) {
    auto choice = std::static_pointer_cast<const Choice<Types>>(given.choice());
    const bool is_meant =
        !unmet.empty() && (Types::requested(unmet) == choice->name || unmet == given.implementation());
    if (is_meant) unmet = {};
    if (unmet.empty() && choice->problem == problem) return choice;
  }
  refuse_plan(given, call, problem.device, unmet, Types::line(problem));
}

// Workspace that the implementation allocates itself; released even if the call throws.
template <class Types>
class DeviceWorkspace {
 public:
  DeviceWorkspace(const Implementation<Types>& one, const Plan& plan, void* stream)
      : one_(one), plan_(plan), stream_(stream), buffer_(one.allocate_workspace(plan, stream)) {}
  ~DeviceWorkspace() { one_.release_workspace(plan_, buffer_, stream_); }
  DeviceWorkspace(const DeviceWorkspace&) = delete;
  DeviceWorkspace& operator=(const DeviceWorkspace&) = delete;

  void* data() const { return buffer_.data; }

 private:
  const Implementation<Types>& one_;
  const Plan& plan_;
  void* stream_;
  Buffer buffer_;
};

// Calls run(context) in the caller's workspace, or else in one from the implementation or from the host pool.
template <class Types, class Options, class Run>
void with_workspace(const Choice<Types>& choice, const Options& options, Run run) {
  const Implementation<Types>& chosen = *choice.implementation;
  const Plan& plan = *choice.plan;
  check_buffer(plan, "workspace", options.workspace, plan.workspace_bytes,
               "workspace_bytes(describe(..)) tells how many; {} for the library's own");
  RunContext context{.threads = options.threads,
                     .thread_pool = options.thread_pool,
                     .cancel = options.cancel,
                     .stream = options.stream};
  if (options.threads == 0 && plan.device.kind == DeviceKind::cpu)
    context.threads = options.thread_pool != nullptr ? options.thread_pool->threads : default_threads();
  if (options.workspace.data != nullptr) {
    context.workspace = options.workspace.data;
    run(context);
  } else if (chosen.allocate_workspace != nullptr) {
    const DeviceWorkspace workspace(chosen, plan, options.stream);
    context.workspace = workspace.data();
    context.library_workspace = true;
    run(context);
  } else {
    const WorkspaceLease lease(plan.workspace_bytes, plan.call);
    context.workspace = lease.data();
    run(context);
  }
}

// Explains the walk through the list for a validated problem; leaves flops and bytes to the caller.
template <class Types>
Explanation explanation_of(const typename Types::Problem& problem, std::string_view implementation) {
  const Chooser<Types> chooser(problem, implementation);
  chooser.check_name("explain");
  const std::vector<Verdict> verdicts = chooser.walk();
  Explanation result;
  for (const Verdict& one : verdicts)
    result.walk.push_back({.name = std::string(one.name),
                           .accepted = one.reason.empty(),
                           .reason = one.reason,
                           .predicted_seconds = one.prepared.plan == nullptr ? 0 : one.prepared.plan->seconds});
  const Verdict* const chosen = Chooser<Types>::leader(verdicts);
  if (chosen == nullptr) return result;
  const Plan& plan = *chosen->prepared.plan;
  result.chosen = chosen->name;
  result.tiles = plan.tiles;
  result.workspace_bytes = plan.workspace_bytes;
  result.saved_bytes = plan.saved_bytes;
  result.predicted_seconds = plan.seconds;
  return result;
}

}  // namespace fovea::core

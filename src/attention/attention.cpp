// The public calls: views -> problem -> choice -> run.
#include "fovea/attention.h"

#include <algorithm>

#include "attention/implementation.h"
#include "attention/validate.h"
#include "core/check.h"
#include "core/choose.h"
#include "core/memory.h"

namespace fovea {
namespace {

using Chooser = core::Chooser<attention::Types>;

// Workspace of an implementation that has its own memory, given back even if the call fails half-way.
class DeviceWorkspace {
 public:
  DeviceWorkspace(const attention::Implementation& one, const core::Plan& plan, void* stream)
      : one_(one), plan_(plan), stream_(stream), buffer_(one.allocate_workspace(plan, stream)) {}
  ~DeviceWorkspace() { one_.release_workspace(plan_, buffer_, stream_); }
  DeviceWorkspace(const DeviceWorkspace&) = delete;
  DeviceWorkspace& operator=(const DeviceWorkspace&) = delete;

  void* data() const { return buffer_.data; }

 private:
  const attention::Implementation& one_;
  const core::Plan& plan_;
  void* stream_;
  Buffer buffer_;
};

void check_buffer(const core::Plan& plan, std::string_view call, std::string_view argument, const Buffer& buffer,
                  std::int64_t wanted) {
  if (buffer.data == nullptr || buffer.bytes >= wanted) return;
  core::fail({.status = Status::invalid_argument,
              .call = std::string(call),
              .argument = std::string(argument),
              .problem = "the buffer is too small",
              .got = std::to_string(buffer.bytes) + " bytes",
              .wanted = "at least " + std::to_string(wanted) + " bytes",
              .hint = argument == "workspace" ? "workspace_bytes(describe(..)) tells how many; {} for the library's own"
                                              : "explain(describe(..)).saved_bytes tells how many",
              .line = plan.line()});
}

// In the caller's workspace if one was given, else in the pool's.
template <class Run>
void with_workspace(const attention::Implementation& chosen, const core::Plan& plan, const AttentionOptions& options,
                    std::string_view call, Run run) {
  check_buffer(plan, call, "workspace", options.workspace, plan.workspace_bytes);
  core::RunContext context{.threads = options.threads,
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
    run(context);
  } else {
    const core::WorkspaceLease lease(plan.workspace_bytes, call);
    context.workspace = lease.data();
    run(context);
  }
}

// Whether there is not one element to write, however large the sizes beside the zero are.
bool is_empty(const AttentionProblem& p) {
  const bool queries = p.batch > 0 && p.heads_q > 0 && p.len_q > 0, keys = p.batch > 0 && p.heads_kv > 0 && p.len_k > 0;
  if (p.pass == Pass::forward) return !queries;
  return !(p.wants_dq && queries) && !((p.wants_dk || p.wants_dv) && keys);
}

}  // namespace

AttentionProblem describe(const ForwardTensors& tensors, const AttentionOptions& options) {
  return core::guarded("describe", [&] { return core::validate(tensors, options, "describe"); });
}

AttentionProblem describe(const BackwardTensors& tensors, const AttentionOptions& options) {
  return core::guarded("describe", [&] { return core::validate(tensors, options, "describe"); });
}

void attention_forward(const ForwardTensors& tensors, const AttentionOptions& options) {
  constexpr std::string_view call = "attention_forward";
  core::guarded(call, [&] {
    const AttentionProblem problem = core::validate(tensors, options, call);
    const auto choice = Chooser(problem, options.implementation).choose(call);
    if (is_empty(problem)) return;
    const core::Plan& plan = *choice->plan;
    check_buffer(plan, call, "saved", tensors.saved, plan.saved_bytes);
    with_workspace(*choice->implementation, plan, options, call,
                   [&](const core::RunContext& context) { choice->implementation->forward(plan, tensors, context); });
  });
}

void attention_backward(const BackwardTensors& tensors, const AttentionOptions& options) {
  constexpr std::string_view call = "attention_backward";
  core::guarded(call, [&] {
    const AttentionProblem problem = core::validate(tensors, options, call);
    const auto choice = Chooser(problem, options.implementation).choose(call);
    if (is_empty(problem)) return;
    const core::Plan& plan = *choice->plan;
    check_buffer(plan, call, "saved", tensors.saved, plan.saved_bytes);
    with_workspace(*choice->implementation, plan, options, call,
                   [&](const core::RunContext& context) { choice->implementation->backward(plan, tensors, context); });
  });
}

std::int64_t workspace_bytes(const AttentionProblem& problem, std::string_view implementation) {
  constexpr std::string_view call = "workspace_bytes";
  return core::guarded(call, [&] {
    core::validate(problem, call);
    return Chooser(problem, implementation).choose(call)->plan->workspace_bytes;
  });
}

Explanation explain(const AttentionProblem& problem, std::string_view implementation) {
  return core::guarded("explain", [&] {
    core::validate(problem, "explain");
    const Chooser chooser(problem, implementation);
    chooser.check_name("explain");
    const std::vector<core::Verdict> verdicts = chooser.walk();
    Explanation result;
    for (const core::Verdict& one : verdicts)
      result.walk.push_back({.name = std::string(one.name),
                             .accepted = one.reason.empty(),
                             .reason = one.reason,
                             .predicted_seconds = one.prepared.plan == nullptr ? 0 : one.prepared.plan->seconds});
    result.flops = flops(problem);
    result.bytes = bytes(problem);
    const core::Verdict* const chosen = Chooser::leader(verdicts);
    if (chosen == nullptr) return result;
    const core::Plan& plan = *chosen->prepared.plan;
    result.chosen = chosen->name;
    result.tiles = plan.tiles;
    result.workspace_bytes = plan.workspace_bytes;
    result.saved_bytes = plan.saved_bytes;
    result.predicted_seconds = plan.seconds;
    return result;
  });
}

std::vector<ImplementationInfo> implementations() {
  return core::guarded("implementations", [] {
    std::vector<ImplementationInfo> infos;
    for (const auto& one : attention::implementations())
      infos.push_back({std::string(one.name), one.device, one.automatic, one.obstacle()});
    return infos;
  });
}

}  // namespace fovea

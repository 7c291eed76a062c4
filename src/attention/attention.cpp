// The public calls: views -> problem -> choice -> run.
#include "fovea/attention.h"

#include <algorithm>

#include "core/check.h"
#include "core/choose.h"
#include "core/memory.h"
#include "attention/validate.h"

namespace fovea {
namespace {

// Workspace of an implementation that has its own memory, given back even if the call fails half-way.
class DeviceWorkspace {
 public:
  DeviceWorkspace(const core::Implementation& one, const AttentionProblem& problem, std::int64_t bytes, void* stream)
      : one_(one), problem_(problem), stream_(stream), buffer_(one.allocate_workspace(problem, bytes, stream)) {}
  ~DeviceWorkspace() { one_.release_workspace(problem_, buffer_, stream_); }
  DeviceWorkspace(const DeviceWorkspace&) = delete;
  DeviceWorkspace& operator=(const DeviceWorkspace&) = delete;

  void* data() const { return buffer_.data; }

 private:
  const core::Implementation& one_;
  const AttentionProblem& problem_;
  void* stream_;
  Buffer buffer_;
};

// The caller's workspace if one was given, else the pool's.
template <class Run>
void with_workspace(const core::Implementation& chosen, const core::Plan& plan, const AttentionProblem& problem,
                    const AttentionOptions& options, std::string_view call, Run run) {
  if (options.workspace.data != nullptr && options.workspace.bytes < plan.workspace_bytes) {
    core::refuse_buffer(problem, call, "workspace", options.workspace.bytes, plan.workspace_bytes);
  }
  core::RunContext context{
      .threads = options.threads, .lender = options.lender, .cancel = options.cancel, .stream = options.stream};
  if (options.threads == 0 && problem.device.kind == DeviceKind::cpu)
    context.threads = options.lender != nullptr ? options.lender->threads : default_threads();
  if (options.workspace.data != nullptr) {
    context.workspace = options.workspace.data;
    run(context);
  } else if (chosen.allocate_workspace != nullptr) {
    const DeviceWorkspace workspace(chosen, problem, plan.workspace_bytes, options.stream);
    context.workspace = workspace.data();
    run(context);
  } else {
    const core::WorkspaceLease lease(plan.workspace_bytes, call);
    context.workspace = lease.data();
    run(context);
  }
}

void check_saved(const core::Plan& plan, const AttentionProblem& problem, const Buffer& saved, std::string_view call) {
  if (saved.data != nullptr && saved.bytes < plan.saved_bytes)
    core::refuse_buffer(problem, call, "saved", saved.bytes, plan.saved_bytes);
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
    const core::Implementation& chosen = core::choose(problem, options.implementation, call);
    if (is_empty(problem)) return;
    const core::Plan plan = chosen.plan(problem);
    check_saved(plan, problem, tensors.saved, call);
    with_workspace(chosen, plan, problem, options, call,
                   [&](const core::RunContext& context) { chosen.forward(problem, tensors, context); });
  });
}

void attention_backward(const BackwardTensors& tensors, const AttentionOptions& options) {
  constexpr std::string_view call = "attention_backward";
  core::guarded(call, [&] {
    AttentionProblem problem = core::validate(tensors, options, call);
    const core::Implementation& chosen = core::choose(problem, options.implementation, call);
    if (is_empty(problem)) return;
    if (problem.len_q == 0) problem.heads_q = problem.heads_kv;  // heads without queries would only be counted through
    const core::Plan plan = chosen.plan(problem);
    check_saved(plan, problem, tensors.saved, call);
    with_workspace(chosen, plan, problem, options, call,
                   [&](const core::RunContext& context) { chosen.backward(problem, tensors, context); });
  });
}

std::int64_t workspace_bytes(const AttentionProblem& problem, std::string_view implementation) {
  constexpr std::string_view call = "workspace_bytes";
  return core::guarded(call, [&] {
    core::validate(problem, call);
    return core::choose(problem, implementation, call).plan(problem).workspace_bytes;
  });
}

Explanation explain(const AttentionProblem& problem, std::string_view implementation) {
  return core::guarded("explain", [&] {
    core::validate(problem, "explain");
    core::check_name(implementation, problem, "explain");
    Explanation result;
    const core::Implementation* chosen = nullptr;
    result.walk = core::walk(problem, implementation, &chosen);
    result.flops = flops(problem);
    result.bytes = bytes(problem);
    if (chosen == nullptr) return result;
    const core::Plan plan = chosen->plan(problem);
    result.chosen = chosen->name;
    result.tiles = chosen->tiles(problem);
    result.workspace_bytes = plan.workspace_bytes;
    result.saved_bytes = plan.saved_bytes;
    return result;
  });
}

std::vector<ImplementationInfo> implementations() {
  return core::guarded("implementations", [] {
    std::vector<ImplementationInfo> infos;
    for (const auto& one : core::all_implementations())
      infos.push_back({std::string(one.name), one.device, one.automatic, one.unavailable()});
    return infos;
  });
}

}  // namespace fovea

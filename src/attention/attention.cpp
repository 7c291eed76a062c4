// The public calls: validate the views, choose a plan for the problem, run it.
#include "fovea/attention.h"

#include <algorithm>

#include "attention/implementation.h"
#include "attention/validate.h"
#include "core/check.h"
#include "core/choose.h"
#include "core/planned_call.h"

namespace fovea {
namespace {

using Chooser = core::Chooser<attention::Types>;
using Choice = core::Choice<attention::Types>;

void check_saved(const Choice& choice, const Buffer& saved) {
  core::check_buffer(*choice.plan, "saved", saved, choice.plan->saved_bytes,
                     "explain(describe(..)).saved_bytes tells how many");
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
    const auto choice = core::choice_of<attention::Types>(problem, options, call);
    if (attention::writes_nothing(problem)) return;
    check_saved(*choice, tensors.saved);
    core::with_workspace(*choice, options, [&](const core::RunContext& context) {
      choice->implementation->forward(*choice->plan, tensors, context);
    });
  });
}

void attention_backward(const BackwardTensors& tensors, const AttentionOptions& options) {
  constexpr std::string_view call = "attention_backward";
  core::guarded(call, [&] {
    const AttentionProblem problem = core::validate(tensors, options, call);
    const auto choice = core::choice_of<attention::Types>(problem, options, call);
    if (attention::writes_nothing(problem)) return;
    check_saved(*choice, tensors.saved);
    core::with_workspace(*choice, options, [&](const core::RunContext& context) {
      choice->implementation->backward(*choice->plan, tensors, context);
    });
  });
}

Plan prepare(const AttentionProblem& problem, std::string_view implementation) {
  return core::guarded("prepare", [&] {
    core::validate(problem, "prepare");
    return core::prepared<attention::Types>(problem, implementation);
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
    Explanation result = core::explanation_of<attention::Types>(problem, implementation);
    result.flops = flops(problem);
    result.bytes = bytes(problem);
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

// The public calls: views -> problem -> choice -> run.
#include "fovea/layers.h"

#include <string>

#include "core/check.h"
#include "core/planned_call.h"
#include "layers/implementation.h"
#include "layers/validate.h"

namespace fovea {
namespace {

using layers::Request;

// Throws Error(invalid_argument) if the caller's plan is of this call, but of other names.
void check_names(const Plan& given, const Request& request, std::string_view call) {
  const auto* const plan = given.held();
  if (plan == nullptr || plan->call != call) return;
  const Request& planned = static_cast<const layers::Plan*>(plan)->request;
  const auto names = [](const Request& one) {
    const auto word = [](const std::string& name) { return name.empty() ? "any" : name; };
    return "attention " + word(one.attention_name) + ", product " + word(one.product_name);
  };
  if (names(planned) == names(request)) return;
  core::fail({.status = Status::invalid_argument,
              .call = std::string(call),
              .argument = "plan",
              .problem = "it was made for other names",
              .got = names(planned),
              .wanted = names(request),
              .hint = "give prepare(..) the names that are in the options",
              .line = plan->line()});
}

std::shared_ptr<const core::Choice<layers::Types>> choice_of(const LayerProblem& problem, const LayerOptions& options,
                                                             std::string_view call) {
  const Request request(problem, options.attention, options.product);
  if (options.plan != nullptr) check_names(*options.plan, request, call);
  const struct {
    const Plan* plan;
    std::string_view implementation;
  } asked{options.plan, {}};
  return core::choice_of<layers::Types>(request, asked, call);
}

// The caller's context with what the layer's options say beyond it.
core::RunContext watched(core::RunContext context, const LayerOptions& options) {
  if (options.watch) context.watch = &options.watch;
  return context;
}

void check_saved(const core::Choice<layers::Types>& choice, const Buffer& saved) {
  core::check_buffer(*choice.plan, "saved", saved, choice.plan->saved_bytes,
                     "saved_bytes(describe(..), attention) tells how many");
}

template <class Types, class Problem>
Explanation explained(const Problem& problem, std::string_view name) {
  Explanation told = core::explanation_of<Types>(problem, name);
  told.flops = flops(problem);
  told.bytes = bytes(problem);
  return told;
}

void add_part(std::string name, Explanation part, LayerExplanation& result) {
  std::string& chosen = name == "attention" ? result.attention : result.product;
  if (chosen.find(part.chosen) == std::string::npos) chosen += (chosen.empty() ? "" : ", ") + part.chosen;
  result.parts.push_back({std::move(name), std::move(part)});
}

}  // namespace

void layer_forward(const LayerForwardTensors& tensors, const LayerOptions& options) {
  constexpr std::string_view call = "layer_forward";
  core::guarded(call, [&] {
    const LayerProblem problem = layers::validate(tensors, options, call);
    const auto choice = choice_of(problem, options, call);
    check_saved(*choice, tensors.saved);
    core::with_workspace(*choice, options, [&](const core::RunContext& context) {
      choice->implementation->forward(*choice->plan, tensors, watched(context, options));
    });
  });
}

void layer_backward(const LayerBackwardTensors& tensors, const LayerOptions& options) {
  constexpr std::string_view call = "layer_backward";
  core::guarded(call, [&] {
    const LayerProblem problem = layers::validate(tensors, options, call);
    const auto choice = choice_of(problem, options, call);
    check_saved(*choice, tensors.saved);
    core::with_workspace(*choice, options, [&](const core::RunContext& context) {
      choice->implementation->backward(*choice->plan, tensors, watched(context, options));
    });
  });
}

LayerProblem describe(const LayerForwardTensors& tensors, const LayerOptions& options) {
  return core::guarded("describe", [&] { return layers::validate(tensors, options, "describe"); });
}

LayerProblem describe(const LayerBackwardTensors& tensors, const LayerOptions& options) {
  return core::guarded("describe", [&] { return layers::validate(tensors, options, "describe"); });
}

Plan prepare(const LayerProblem& problem, std::string_view attention, std::string_view product) {
  return core::guarded("prepare", [&] {
    layers::validate(problem, "prepare");
    return core::prepared<layers::Types>(Request(problem, attention, product), {});
  });
}

std::int64_t workspace_bytes(const LayerProblem& problem, std::string_view attention, std::string_view product) {
  constexpr std::string_view call = "workspace_bytes";
  return core::guarded(call, [&] {
    layers::validate(problem, call);
    const Request request(problem, attention, product);
    return core::Chooser<layers::Types>(request, {}).choose(call)->plan->workspace_bytes;
  });
}

LayerExplanation explain(const LayerProblem& problem, std::string_view attention, std::string_view product) {
  return core::guarded("explain", [&] {
    layers::validate(problem, "explain");
    const Request request(problem, attention, product);
    LayerExplanation result;
    const auto add_attention = [&] {
      if (layers::needs_attention(problem))
        add_part("attention", explained<attention::Types>(layers::attention_part(request), attention), result);
    };
    const bool forward = problem.pass == Pass::forward;
    std::int64_t largest = 0;
    for (const layers::Product& one : layers::products_of(problem)) {
      const bool is_out = one.source == layers::Source::attention;
      if (is_out && forward) add_attention();
      add_part(one.name(), explained<linear::Types>(one.problem, product), result);
      if (is_out && !forward && one.problem.wants_dx) add_attention();
    }
    for (const LayerExplanation::Part& part : result.parts)
      largest = std::max(largest, part.explanation.workspace_bytes);
    const layers::MemoryMap memory(problem, layers::state_bytes(request), largest);
    if (forward || layers::needs_attention(problem)) result.row_passes = layers::row_passes_of(problem);
    result.saved = memory.saved;
    result.saved_bytes = memory.saved_bytes;
    result.workspace_bytes = memory.workspace_bytes;
    result.flops = flops(problem);
    result.bytes = bytes(problem);
    return result;
  });
}

}  // namespace fovea

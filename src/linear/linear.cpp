// The public calls: views -> problem -> choice -> run.
#include "fovea/linear.h"

#include "core/check.h"
#include "core/choose.h"
#include "core/planned_call.h"
#include "linear/implementation.h"
#include "linear/validate.h"

namespace fovea {
namespace {

using Chooser = core::Chooser<linear::Types>;

double elements(const LinearProblem& p, bool of_x) {
  return static_cast<double>(p.rows()) * static_cast<double>(of_x ? p.columns_in() : p.columns_out());
}

}  // namespace

double flops(const LinearProblem& p) {
  const double product = 2.0 * elements(p, true) * static_cast<double>(p.columns_out());
  if (p.pass == Pass::forward) return product;
  return product * ((p.wants_dx ? 1 : 0) + (p.wants_dweight ? 1 : 0));
}

double bytes(const LinearProblem& p) {
  const double in = static_cast<double>(size_of(p.dtype)), result = static_cast<double>(size_of(p.result_dtype)),
               parameter = static_cast<double>(size_of(p.parameter_dtype));
  const double x = elements(p, true), y = elements(p, false), n = static_cast<double>(p.columns_out());
  const double weight = n * static_cast<double>(p.columns_in());
  if (p.pass == Pass::forward) return in * (x + weight + (p.bias ? n : 0)) + result * y;
  const double gradients = (p.wants_dweight ? weight : 0) + (p.wants_dbias ? n : 0);
  return in * (y + (p.wants_dweight ? x : 0) + (p.wants_dx ? weight : 0)) +
         (p.wants_dx ? result * x * (p.accumulate_dx ? 2 : 1) : 0) + parameter * gradients * (p.accumulate ? 2 : 1);
}

void linear_forward(const LinearForwardTensors& tensors, const LinearOptions& options) {
  constexpr std::string_view call = "linear_forward";
  core::guarded(call, [&] {
    const LinearProblem problem = linear::validate(tensors, options, call);
    const auto choice = core::choice_of<linear::Types>(problem, options, call);
    core::with_workspace(*choice, options, [&](const core::RunContext& context) {
      choice->implementation->forward(*choice->plan, tensors, context);
    });
  });
}

void linear_backward(const LinearBackwardTensors& tensors, const LinearOptions& options) {
  constexpr std::string_view call = "linear_backward";
  core::guarded(call, [&] {
    const LinearProblem problem = linear::validate(tensors, options, call);
    const auto choice = core::choice_of<linear::Types>(problem, options, call);
    core::with_workspace(*choice, options, [&](const core::RunContext& context) {
      choice->implementation->backward(*choice->plan, tensors, context);
    });
  });
}

LinearProblem describe(const LinearForwardTensors& tensors, const LinearOptions& options) {
  return core::guarded("describe", [&] { return linear::validate(tensors, options, "describe"); });
}

LinearProblem describe(const LinearBackwardTensors& tensors, const LinearOptions& options) {
  return core::guarded("describe", [&] { return linear::validate(tensors, options, "describe"); });
}

Plan prepare(const LinearProblem& problem, std::string_view implementation) {
  return core::guarded("prepare", [&] {
    linear::validate(problem, "prepare");
    return core::prepared<linear::Types>(problem, implementation);
  });
}

std::int64_t workspace_bytes(const LinearProblem& problem, std::string_view implementation) {
  constexpr std::string_view call = "workspace_bytes";
  return core::guarded(call, [&] {
    linear::validate(problem, call);
    return Chooser(problem, implementation).choose(call)->plan->workspace_bytes;
  });
}

Explanation explain(const LinearProblem& problem, std::string_view implementation) {
  return core::guarded("explain", [&] {
    linear::validate(problem, "explain");
    Explanation result = core::explanation_of<linear::Types>(problem, implementation);
    result.flops = flops(problem);
    result.bytes = bytes(problem);
    return result;
  });
}

std::vector<ImplementationInfo> linear_implementations() {
  return core::guarded("linear_implementations", [] {
    std::vector<ImplementationInfo> infos;
    for (const linear::Implementation& one : linear::Types::list())
      infos.push_back({std::string(one.name), one.device, one.automatic, one.obstacle()});
    return infos;
  });
}

}  // namespace fovea

// The three entries of the list, one per form.
#include "baselines/baselines.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "attention/scale.h"
#include "baselines/backward.h"
#include "baselines/forward.h"
#include "baselines/plan.h"
#include "baselines/saved_state.h"
#include "core/never_destroyed.h"
#include "linear/blas/blas.h"

namespace fovea::baselines {
namespace {

core::Prepared prepare(const AttentionProblem& p, int form) {
  const std::int64_t longest = std::max(p.len_q, p.len_k);
  if (longest > linear::blas::kLargestSize)
    return {.refusal = "the matrix libraries take lengths below 2^31, got " + std::to_string(longest)};
  if (std::string reason = attention::scale_refusal(p.scale); !reason.empty()) return {.refusal = std::move(reason)};
  auto plan = std::make_shared<Plan>(static_cast<Form>(form), p);
  if (p.pass == Pass::forward)
    plan->forward = forward_layout(p), plan->workspace_bytes = plan->forward.bytes;
  else
    plan->backward = backward_layout(p), plan->workspace_bytes = plan->backward.bytes;
  plan->saved_bytes = saved_bytes(p);
  plan->tiles = "the whole score matrix, " + std::to_string(p.len_q) + " x " + std::to_string(p.len_k) +
                " for each batch and head";
  return {.plan = std::move(plan)};
}

void run_forward(const core::Plan& prepared, const ForwardTensors& tensors, const core::RunContext& context) {
  const auto& plan = static_cast<const Plan&>(prepared);
  if (plan.problem.saved_state) invalidate_saved_header(tensors.saved);
  forward(plan, tensors, context);
  if (plan.problem.saved_state) write_saved_header(plan.problem, plan.name(), tensors.saved);
}

void run_backward(const core::Plan& prepared, const BackwardTensors& tensors, const core::RunContext& context) {
  const auto& plan = static_cast<const Plan&>(prepared);
  const AttentionProblem& p = plan.problem;
  const bool reads_state = p.saved_state && p.batch * p.heads_q * p.len_q * p.len_k > 0;
  if (reads_state) check_saved_header(p, plan.name(), tensors.saved);
  backward(plan, tensors, context);
}

attention::Implementation entry(Form form) {
  return {.name = name_of(form),
          .device = DeviceKind::cpu,
          .variant = static_cast<int>(form),
          .automatic = false,
          .reproducible = false,  // the libraries do not promise the same bits
          .unavailable = [](int) { return linear::blas::unavailable(); },
          .prepare = prepare,
          .forward = run_forward,
          .backward = run_backward};
}

}  // namespace

std::span<const attention::Implementation> implementations() {
  static const auto& all =
      core::never_destroyed<std::vector<attention::Implementation>>(std::initializer_list<attention::Implementation>{
          entry(Form::naive), entry(Form::vectorized), entry(Form::fused)});
  return all;
}

}  // namespace fovea::baselines

// The baselines' implementations, one per form.
#include "baselines/cuda/baselines.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attention/scale.h"
#include "baselines/cuda/backward.h"
#include "baselines/cuda/forward.h"
#include "baselines/cuda/plan.h"
#include "baselines/cuda/saved_states.h"
#include "baselines/saved_state.h"
#include "core/never_destroyed.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/placement.h"
#include "cuda/runtime/workspace_pool.h"
#include "linear/cuda/matrix_library.h"

namespace fovea::cuda::baselines {
namespace {

using fovea::baselines::Form;

std::string obstacle(int) {
  if (std::string missing = unavailable(); !missing.empty()) return missing;
  return missing_matrix_library();
}

core::Prepared prepare(const AttentionProblem& p, int variant) {
  constexpr std::int64_t kLongest = std::int64_t{1} << 30;
  for (const std::int64_t size : {p.batch, p.heads_q, p.heads_kv, p.len_q, p.len_k, p.dim_qk, p.dim_v}) {
    if (size > kLongest) return {.refusal = "takes sizes up to 2^30, got " + std::to_string(size)};
  }
  // cuBLASLt counts the products of a batch in 32 bits.
  if (p.batch * std::max(p.heads_q, p.heads_kv) > std::numeric_limits<std::int32_t>::max())
    return {.refusal = "batch x heads = " + std::to_string(p.batch) + " x " +
                       std::to_string(std::max(p.heads_q, p.heads_kv)) + ", takes up to 2147483647"};
  // The last row sees the latest first key.
  if (key_window(p).begin + p.len_q > 1)
    return {.refusal = "takes only masks that hide no early key: its passes begin every row at key 0"};
  if (std::string reason = attention::scale_refusal(p.scale); !reason.empty()) return {.refusal = std::move(reason)};
  const auto form = static_cast<Form>(variant);
  auto plan = std::make_shared<Plan>(form, p);
  if (p.pass == Pass::forward)
    plan->forward = forward_layout(p, most_pairs(plan->strips)), plan->workspace_bytes = plan->forward.bytes;
  else
    plan->backward = backward_layout(p, most_pairs(plan->strips)), plan->workspace_bytes = plan->backward.bytes;
  plan->saved_bytes = fovea::baselines::saved_bytes(p);
  plan->tiles = "the whole score matrix, " + std::to_string(p.len_q) + " x " + std::to_string(p.len_k) +
                " for each batch and head";
  return {.plan = std::move(plan)};
}

void run_forward(const core::Plan& prepared, const ForwardTensors& t, const core::RunContext& context) {
  const auto& plan = static_cast<const Plan&>(prepared);
  const CurrentDevice current(plan.device.index);
  check_placements(plan, t, context);
  if (plan.problem.saved_state) forget_saved(t.saved);
  forward(plan, t, context);
  if (plan.problem.saved_state) remember_saved(plan.problem, plan.name(), t.saved);
}

void run_backward(const core::Plan& prepared, const BackwardTensors& t, const core::RunContext& context) {
  const auto& plan = static_cast<const Plan&>(prepared);
  const AttentionProblem& p = plan.problem;
  const CurrentDevice current(plan.device.index);
  check_placements(plan, t, context);
  const bool reads_state = p.saved_state && p.batch * p.heads_q * p.len_q * p.len_k > 0;
  if (reads_state) check_saved(p, plan.name(), t.saved);
  backward(plan, t, context);
}

attention::Implementation entry(Form form) {
  return {.name = name_of(form),
          .device = DeviceKind::cuda,
          .variant = static_cast<int>(form),
          .automatic = false,
          .reproducible = false,  // as on the CPU, so that one name makes one promise
          .unavailable = obstacle,
          .prepare = prepare,
          .forward = run_forward,
          .backward = run_backward,
          .allocate_workspace = allocate_workspace,
          .release_workspace = release_workspace};
}

}  // namespace

std::span<const attention::Implementation> implementations() {
  static const auto& all =
      core::never_destroyed<std::vector<attention::Implementation>>(std::initializer_list<attention::Implementation>{
          entry(Form::naive), entry(Form::vectorized), entry(Form::fused)});
  return all;
}

}  // namespace fovea::cuda::baselines

// The plan of a call: tiles, splits, and the map of the workspace.
#pragma once

#include <cstdint>
#include <string>

#include "attention/plan.h"
#include "cuda/attention/any/tile_choice.h"

namespace fovea::cuda::any {

// In all plans: partial_*, lse and delta are byte offsets into the workspace; -1: not needed.
struct ForwardPlan final : attention::Plan {
  using attention::Plan::Plan;

  ElementKind kind = ElementKind::fp32;
  Shape shape;
  const KernelInstance* kernel = nullptr;
  Split split;
  Grid grid;
  int shared_bytes = 0;  // of a thread block
  std::int64_t ctas = 0;
  std::int64_t partial_out = -1, partial_state = -1;
};

struct GradientPlan {
  const KernelInstance* kernel = nullptr;
  Split split;
  Grid grid;
  int shared_bytes = 0;
  std::int64_t ctas = 0;
  std::int64_t partial_dk_or_dq = -1, partial_dv = -1;
};

struct BackwardPlan final : attention::Plan {
  using attention::Plan::Plan;

  ElementKind kind = ElementKind::fp32;
  Shape shape;
  bool accumulate = false;
  std::int64_t preprocess_ctas = 0;
  GradientPlan dkdv, dq;
  std::int64_t lse = 0, delta = 0;
};

// The library's choice, or why these kernels do not take the problem. There is one variant.
core::Prepared prepare(const AttentionProblem& problem, int variant);

// With overrides of the library's choice, for measurements; the kernels must take the problem.
ForwardPlan plan_forward(const AttentionProblem& problem, const PlanOverride& plan_override);
BackwardPlan plan_backward(const AttentionProblem& problem, const PlanOverride& dkdv, const PlanOverride& dq);

}  // namespace fovea::cuda::any

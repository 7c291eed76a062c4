// A baseline's plan on a device.
#pragma once

#include <vector>

#include "attention/plan.h"
#include "baselines/cuda/memory_plan.h"
#include "baselines/cuda/pieces.h"
#include "baselines/form.h"

namespace fovea::cuda::baselines {

struct Plan final : attention::Plan {
  Plan(fovea::baselines::Form f, const AttentionProblem& p) : attention::Plan(p), form(f), strips(strip_plans(f, p)) {}

  std::string_view name() const { return name_of(form); }

  fovea::baselines::Form form;
  std::vector<StripPlan> strips;
  ForwardLayout forward;    // of the pass
  BackwardLayout backward;  // likewise
};

}  // namespace fovea::cuda::baselines

// A baseline's plan.
#pragma once

#include <string_view>

#include "attention/plan.h"
#include "baselines/form.h"
#include "baselines/memory_plan.h"
#include "baselines/scores.h"

namespace fovea::baselines {

struct Plan final : attention::Plan {
  Plan(Form f, const AttentionProblem& p) : attention::Plan(p), form(f), shape(p) {}

  std::string_view name() const { return name_of(form); }

  Form form;
  ScoreShape shape;
  ForwardLayout forward;    // of the pass
  BackwardLayout backward;  // likewise
};

}  // namespace fovea::baselines

// The base of the plans of all implementations of attention.
#pragma once

#include "core/plan.h"
#include "fovea/problem.h"

namespace fovea::attention {

struct Plan : core::Plan {
  explicit Plan(const AttentionProblem& p) : problem(p) {
    call = p.pass == Pass::forward ? "attention_forward" : "attention_backward";
    device = p.device;
  }
  std::string line() const override;

  AttentionProblem problem;
};

}  // namespace fovea::attention

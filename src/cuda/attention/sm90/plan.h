// The plan of a call: kernel instance, order of tiles, and the workspace.
#pragma once

#include <cstdint>

#include "attention/plan.h"
#include "cuda/attention/sm90/parameters.h"

namespace fovea::cuda::sm90 {

struct ForwardPlan final : attention::Plan {
  using attention::Plan::Plan;

  Shape shape;
  const ForwardInstance* kernel = nullptr;
  TileOrder order;           // its counter is the start of the workspace
  bool has_counter = false;  // it must be set to 0 before the launch
  std::int64_t ctas = 0;
};

// The library's choice, or why these kernels do not take the problem. There is one variant.
core::Prepared prepare(const AttentionProblem& problem, int variant);

}  // namespace fovea::cuda::sm90
